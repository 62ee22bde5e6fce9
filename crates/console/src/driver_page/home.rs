//! The page of a driver: live offers, the order that the driver carries out, and the availability.
//!
//! The script requests the page again and names what it shows. The request waits like that of an app
//! ([`board::wait_for_offers`]) until the offers differ. It does not wait if the order or the availability differs. A
//! change of the order during the wait is shown at its end, so a driver with an order waits for a shorter time.

use std::time::Duration;

use api::{drivers::parse_known, error::ApiError, orders::read_order};
use app::App;
use askama::Template;
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use chrono::{DateTime, Utc};
use model::{details::Contact, order::OrderStatus, view::OrderView};
use notify::channels::push::channel::PushChannel;
use orders::{
    fleet::drivers::{self, DriverRecord},
    offers::{
        board::{self, KnownOffers, WaitOutcome},
        live::{self, LiveOffer},
    },
};
use serde::Deserialize;

use super::{
    BASE,
    contents::ShownContents,
    outcome::{Notice, OFFER_ENDED, page_error},
    session::SignedInDriver,
};
use crate::{
    assets,
    catalogue::tr,
    page::{Shell, render},
    page_error::PageError,
    shown::{Chip, Countdown, Moment, describe_distance},
};

/// Seconds that the page of a driver without an order waits for a change.
const WAIT_S: u64 = 20;
/// Seconds that the page of a driver with an order waits.
const WAIT_WITH_ORDER_S: u64 = 5;

/// State that the page's script knows. It is empty in the first request of a browser.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HomeQuery {
    /// Code of the notice about the last action.
    notice: String,
    /// Seconds to wait for a change.
    wait: u64,
    /// Offers that the page shows, as in the API.
    known: String,
    /// [`DriverState::mark`] of the page.
    seen: String,
}

/// An offer on the page.
struct OfferCard {
    order_id: String,
    offer_id: String,
    service_type: String,
    distance: Option<String>,
    contents: ShownContents,
    expires: Countdown,
    /// Expiry in a machine-readable form.
    until: String,
    /// Seconds from the offer to its expiry.
    total_s: i64,
    /// Seconds left.
    left_s: i64,
}

impl OfferCard {
    fn new(offer: LiveOffer, now: DateTime<Utc>) -> Self {
        Self {
            order_id: offer.order_id.clone(),
            offer_id: offer.offer_id.to_string(),
            service_type: offer.service_type.to_string(),
            distance: offer.distance_m.map(describe_distance),
            expires: Countdown { to: offer.expires_at, now },
            until: Moment(offer.expires_at).machine(),
            total_s: (offer.expires_at - offer.offered_at).num_seconds(),
            left_s: (offer.expires_at - now).num_seconds().max(0),
            contents: ShownContents::of_offer(offer),
        }
    }
}

/// The order that the driver carries out. Has no `Debug`, because the contact appears in no log.
struct Trip {
    order_id: String,
    service_type: String,
    status: Chip,
    is_aboard: bool,
    contact: Option<Contact>,
    contents: ShownContents,
}

impl Trip {
    fn new(mut order: OrderView) -> Self {
        Self {
            order_id: order.order_id.to_string(),
            service_type: order.service_type.to_string(),
            status: Chip::of_status(order.status),
            is_aboard: order.status == OrderStatus::PickedUp,
            contact: order.contact.take().filter(|contact| !contact.is_empty()),
            contents: ShownContents::of_order(order),
        }
    }
}

/// Has no `Debug`, because the contact appears in no log.
#[derive(Template)]
#[template(path = "driver_home.html")]
struct HomePage {
    shell: Shell,
    style: &'static str,
    script: &'static str,
    name: String,
    is_available: bool,
    notice: Option<Notice>,
    trip: Option<Trip>,
    offers: Vec<OfferCard>,
    known: String,
    seen: String,
    wait_s: u64,
    /// Public key with which the browser subscribes to push messages; `None` if push is off.
    push_key: Option<String>,
}

/// The driver's row and order.
struct DriverState {
    record: DriverRecord,
    /// The order and the version of its contents.
    order: Option<(OrderView, i64)>,
}

impl DriverState {
    async fn load(app: &App, driver: &SignedInDriver) -> Result<Self, PageError> {
        let found = drivers::find_driver(&app.core.pages, &driver.0).await?;
        let record = found.filter(|record| record.disabled_at.is_none()).ok_or(PageError::SignIn(None))?;
        let Some(Ok(id)) = record.active_order.as_deref().map(str::parse) else {
            return Ok(Self { record, order: None });
        };
        let order = match read_order(app, &driver.caller(), &id).await {
            Ok(found) => Some(found).filter(|(order, _)| order.status.occupies_driver()),
            // It was taken from the driver in the meantime.
            Err(ApiError::NoSuchOrder) => None,
            Err(error) => return Err(page_error(error)),
        };
        Ok(Self { record, order })
    }

    /// Returns a text that differs when the order or the availability has changed.
    fn mark(&self) -> String {
        let available = self.record.available;
        match &self.order {
            Some((order, version)) => format!("{available}.{}.{}.{version}", order.order_id, order.status.as_str()),
            None => available.to_string(),
        }
    }
}

/// Returns the live offers of the driver, after at most `wait`.
async fn await_offers(
    app: &App,
    driver: &SignedInDriver,
    known: &KnownOffers,
    wait: Duration,
) -> Result<Vec<LiveOffer>, PageError> {
    let reach = (&app.core.db, &app.core.loops);
    match board::wait_for_offers(&app.orders.offers, reach, &driver.0, known, wait).await? {
        WaitOutcome::Offers(offers) => Ok(offers),
        // Newer pages or an app of this driver wait.
        WaitOutcome::SentAway => Ok(live::live_offers(&app.core.db, &driver.0).await?),
    }
}

/// Shows the page. An unreadable query is treated as a missing one.
pub(super) async fn show_page(
    State(app): State<App>,
    driver: SignedInDriver,
    query: Result<Query<HomeQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    let query = query.map_or_else(|_| HomeQuery::default(), |Query(query)| query);
    let known = parse_known(&query.known).unwrap_or_default();
    let mut state = DriverState::load(&app, &driver).await?;
    let may_wait = query.wait > 0 && state.mark() == query.seen;
    let wait = if may_wait { Duration::from_secs(query.wait.min(WAIT_S)) } else { Duration::ZERO };
    let offers = await_offers(&app, &driver, &known, wait).await?;
    if may_wait {
        state = DriverState::load(&app, &driver).await?;
    }
    let is_live = |id| offers.iter().any(|offer| offer.offer_id == id);
    let has_ended = state.order.is_none() && known.keys().any(|id| !is_live(*id));
    let notice = Notice::of_code(&query.notice).or_else(|| Notice::of_code(OFFER_ENDED).filter(|_| has_ended));
    render(&build_page(&app, state, offers, notice))
}

fn build_page(app: &App, state: DriverState, offers: Vec<LiveOffer>, notice: Option<Notice>) -> HomePage {
    let now = app.core.database_clock.now();
    let seen = state.mark();
    let known: Vec<String> = offers.iter().map(|offer| format!("{}:{}", offer.offer_id, offer.version)).collect();
    let DriverState { record, order } = state;
    HomePage {
        shell: Shell::without_person(BASE, tr("driver_page.app_name")).made_at(now),
        style: assets::driver_style_name(),
        script: assets::driver_script_name(),
        name: record.name.unwrap_or_else(|| record.id.to_string()),
        is_available: record.available,
        notice,
        wait_s: if order.is_some() { WAIT_WITH_ORDER_S } else { WAIT_S },
        trip: order.map(|(order, _)| Trip::new(order)),
        offers: offers.into_iter().map(|offer| OfferCard::new(offer, now)).collect(),
        known: known.join(","),
        seen,
        push_key: app.notify.channels.push_channel().map(PushChannel::public_key),
    }
}
