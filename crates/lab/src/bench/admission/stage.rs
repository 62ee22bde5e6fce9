//! Servers, the API, and a thousand areas, one of which has little room.

use std::time::{Duration, Instant};

use anyhow::ensure;
use axum::Router;
use foundation::core::Core;
use serde_json::{Value, json};
use servers::{PostgresServer, RedisServer};
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::testbed::start_private_app;
use accounts::{api_keys::AccountRole, key_admin};
use api::server;
use app::App;
use areas::{
    admission::waiting::{self, SuspectMembers},
    import,
    table::{
        ChangeAuthor, flag, geofences,
        limits::{self, LimitsChange},
    },
};
use foundation::outbound;
use model::{
    actor::{Actor, ActorRole},
    admission::{
        answer::{SERVICE_UNAVAILABLE, THRESHOLD_REACHED},
        limits::AdmissionFlag,
    },
    ids::LatLng,
};

pub(super) const SERVICE_TYPE: &str = "RIDE";
/// The area with little room: the first one.
pub(super) const AREA: &str = "A-0";
pub(super) const THRESHOLD: i64 = 100;
pub(super) const WITH_BYPASS: i64 = 120;
/// Number of checked areas in each of the two states.
const ASKED_ABOUT: u32 = 50;
/// Grid of areas, 25 by 40.
const COLUMNS: u32 = 25;
const ROWS: u32 = 40;
pub(super) const AREAS: u32 = COLUMNS * ROWS;
const SIDE: f64 = 0.02;
const CORNER: (f64, f64) = (-6.6, 106.6);
/// Timeout until the checks report the filled areas as full.
const FILL_WAIT: Duration = Duration::from_secs(30);
const FILL_POLL: Duration = Duration::from_millis(20);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const AUTHOR: ChangeAuthor<'static> =
    ChangeAuthor { actor: &Actor::with_fixed_name(ActorRole::Operator, "bench"), reason: Some("bench") };

#[derive(Debug)]
pub(super) struct AdmissionStage {
    pub(super) app: App,
    base: String,
    key: String,
    client: reqwest::Client,
    _serving: DropGuard,
    // Dropped last, because the other fields use them.
    _redis: RedisServer,
    _postgres: PostgresServer,
}

impl AdmissionStage {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let (app, redis, postgres) = start_private_app(|config| {
            // The benchmark uses one key from one address at full speed, so the limits are off.
            config.http.requests_per_s_per_key = 0;
            config.http.max_connections_per_address = 0;
        })
        .await?;
        make_areas(&app).await?;
        let (_, key) = key_admin::create_permanent_key(&app.core.db, "bench", AccountRole::Producer, None).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let base = format!("http://{}", listener.local_addr()?);
        let stop = CancellationToken::new();
        tokio::spawn(server::serve_api(listener, app.clone(), Router::new(), stop.clone()));
        let client = outbound::build_client(REQUEST_TIMEOUT)?;
        Ok(Self { app, base, key, client, _serving: stop.drop_guard(), _redis: redis, _postgres: postgres })
    }

    /// Fills every area of [`AskedAreas::Full`], and waits until checks report them as full.
    pub(super) async fn fill_asked_areas(&self) -> anyhow::Result<()> {
        for asked in 0..ASKED_ABOUT {
            let area = AskedAreas::Full.area(asked);
            let LatLng { lat: latitude, lng: longitude } = area_point(area);
            let id = format!("FULL-{area}");
            let body = json!({
                "order_id": id,
                "service_type": SERVICE_TYPE,
                "pickup": { "latitude": latitude, "longitude": longitude },
            });
            let answer = self.create_order(&id, &body).await;
            ensure!(answer == AvailabilityAnswer::Room, "an order for area A-{area} was answered {answer:?}");
        }
        let deadline = Instant::now() + FILL_WAIT;
        for asked in 0..ASKED_ABOUT {
            let area = AskedAreas::Full.area(asked);
            while !AskedAreas::Full.is_expected(self.check_availability(area).await) {
                ensure!(Instant::now() < deadline, "checks do not report area A-{area} as full with areas nearby");
                sleep(FILL_POLL).await;
            }
        }
        Ok(())
    }

    /// Checks whether area `n` has room.
    pub(super) async fn check_availability(&self, n: u32) -> AvailabilityAnswer {
        let LatLng { lat: latitude, lng: longitude } = area_point(n);
        let body = json!({
            "pickup_location": { "latitude": latitude, "longitude": longitude },
            "service_type": SERVICE_TYPE,
            "channel": "MYBB",
            "user_id": format!("USR-{n}"),
        });
        let url = format!("{}/api/v1/dispatcher/availability-check", self.base);
        self.send_json(self.client.post(url), &body).await
    }

    /// Creates the order with this id. A repeated request gets the same answer.
    pub(super) async fn create_order(&self, id: &str, body: &Value) -> AvailabilityAnswer {
        self.send_json(self.client.post(format!("{}/api/v1/orders", self.base)).header("Idempotency-Key", id), body)
            .await
    }

    async fn send_json(&self, request: reqwest::RequestBuilder, body: &Value) -> AvailabilityAnswer {
        match request.bearer_auth(&self.key).json(body).send().await {
            Ok(answer) if answer.status().is_success() => {
                if answer.bytes().await.is_ok() {
                    AvailabilityAnswer::Room
                } else {
                    AvailabilityAnswer::Nothing
                }
            }
            Ok(answer) => {
                let body: Value = answer.json().await.unwrap_or_default();
                match body["error_code"].as_str().unwrap_or_default() {
                    THRESHOLD_REACHED => AvailabilityAnswer::Full {
                        names_nearby: body["nearby_areas"].as_array().is_some_and(|a| !a.is_empty()),
                    },
                    "UNAVAILABLE" | SERVICE_UNAVAILABLE => AvailabilityAnswer::Shed,
                    _ => AvailabilityAnswer::Nothing,
                }
            }
            Err(_) => AvailabilityAnswer::Nothing,
        }
    }
}

/// Classified answer of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AvailabilityAnswer {
    Room,
    Full {
        /// Whether the answer contains `nearby_areas`.
        names_nearby: bool,
    },
    /// The server sheds load; a client retries after a second.
    Shed,
    /// No answer, or an invalid one.
    Nothing,
}

/// Checked areas, spread over the grid so that each has neighbours with room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskedAreas {
    /// Areas without waiting orders.
    WithRoom,
    /// Areas with as many waiting orders as allowed.
    Full,
}

impl AskedAreas {
    /// Returns the area of the `n`-th check.
    pub(super) fn area(self, n: u32) -> u32 {
        let first = if self == Self::Full { 13 } else { 3 };
        n % ASKED_ABOUT * (AREAS / ASKED_ABOUT) + first
    }

    /// Returns whether the answer matches the state of these areas.
    pub(super) fn is_expected(self, answer: AvailabilityAnswer) -> bool {
        answer
            == match self {
                Self::WithRoom => AvailabilityAnswer::Room,
                Self::Full => AvailabilityAnswer::Full { names_nearby: true },
            }
    }
}

async fn make_areas(app: &App) -> anyhow::Result<()> {
    import_areas(&app.core, AREAS).await?;
    let limit = |max| LimitsChange {
        service_type: SERVICE_TYPE.into(),
        max_waiting_orders: Some(max),
        cooldown_period_sec: Some(0),
        low_water_percentage: Some(100),
        ..LimitsChange::default()
    };
    limits::set_limits(&app.core.db, &AREA.into(), &limit(THRESHOLD), None, AUTHOR).await?;
    for area in (0..ASKED_ABOUT).map(|asked| AskedAreas::Full.area(asked)) {
        limits::set_limits(&app.core.db, &format!("A-{area}").as_str().into(), &limit(1), None, AUTHOR).await?;
    }
    flag::set_flag(&app.core.db, &AdmissionFlag { enabled: true, ..AdmissionFlag::default() }, None, AUTHOR).await?;
    app.areas.reload_if_changed().await?;
    waiting::repair_waiting_sets(&app.areas, &mut SuspectMembers::default()).await?;
    Ok(())
}

/// Imports this many areas: and so on, with the default limits.
pub(in crate::bench) async fn import_areas(core: &Core, count: u32) -> anyhow::Result<()> {
    let mut features = Vec::new();
    for n in 0..count {
        let (south, west) = area_corner(n);
        let (north, east) = (south + SIDE, west + SIDE);
        features.push(json!({
            "type": "Feature",
            "properties": { "area_id": format!("A-{n}") },
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[west, south], [east, south], [east, north], [west, north], [west, south]]],
            },
        }));
    }
    let text = json!({ "type": "FeatureCollection", "features": features }).to_string();
    geofences::import_areas(&core.db, &import::parse(&text)?, false, None, AUTHOR).await?;
    Ok(())
}

fn area_corner(n: u32) -> (f64, f64) {
    (CORNER.0 + f64::from(n / COLUMNS) * SIDE, CORNER.1 + f64::from(n % COLUMNS) * SIDE)
}

/// Returns a place in area `n`.
pub(super) fn area_point(n: u32) -> LatLng {
    let (south, west) = area_corner(n);
    LatLng::new(south + SIDE / 3.0, west + SIDE / 3.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule L10: The benchmark accepts an answer about a full area only if it names nearby areas.
    #[test]
    fn full_areas_answer_with_areas_nearby() {
        for n in 0..ASKED_ABOUT {
            assert_ne!(AskedAreas::Full.area(n), AskedAreas::WithRoom.area(n));
            assert!(AskedAreas::Full.area(n) < AREAS);
        }
        assert!(AskedAreas::Full.is_expected(AvailabilityAnswer::Full { names_nearby: true }));
        for other in [AvailabilityAnswer::Full { names_nearby: false }, AvailabilityAnswer::Room] {
            assert!(!AskedAreas::Full.is_expected(other), "{other:?}");
        }
    }
}
