//! Taking a place when an order is created: what counts.
//!
//! 1. The gatekeeper: one script in Redis drops who is past the lifetime, counts, compares and adds.
//! 2. The judge: in the transaction that inserts the row Postgres counts, too, under a lock of this area and service type.
//!    So nothing is overshot while Redis is away, empty, or behind.
//!
//! If the process dies in between, the place is given back by the reconciler within a minute or two.

use std::time::Duration;

use jobs::OrderId;
use metrics::counter;
use model::{
    admission::{
        answer::{AdmissionAnswer, AreaDetails},
        decide::{AdmissionCaller, AdmissionGate, AdmissionRefusal, AdmissionRule},
        limits::LoyaltyLevel,
    },
    ids::{AreaId, AreaKey, LatLng, ServiceType},
};
use redis::cmd;

use crate::{
    admission::{
        check,
        waiting::{self, PlaceOutcome},
    },
    app::App,
    areas::{label, standings::AreaStanding},
    redis_keys,
};

/// A place that was taken, or none that was needed.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingPlace {
    /// The area the order belongs to.
    pub area: Option<AreaId>,
    /// While fewer wait, as Postgres counts; `None`: it need not.
    pub limit: Option<i64>,
    /// Of the area, instead of the service type's.
    pub lifetime: Option<Duration>,
}

/// A place in Redis for an order that is not in Postgres yet. Dropping it gives the place back.
#[derive(Debug)]
pub struct HeldPlace(Option<(App, AreaKey, OrderId)>);

impl HeldPlace {
    /// The order may be in Postgres now.
    pub fn keep_place(mut self) {
        self.0 = None;
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        if let Some((app, at, order)) = self.0.take() {
            tokio::spawn(async move { waiting::remove_order(&app, &at.area, &at.service_type, &order, None).await });
        }
    }
}

impl WaitingPlace {
    /// The place as long as its order is on its way to Postgres.
    pub fn hold_for(&self, app: &App, seeker: PlaceSeeker<'_>) -> HeldPlace {
        let held = |area: &AreaId| (app.clone(), AreaKey::new(area, seeker.service_type), seeker.order.clone());
        HeldPlace(self.area.as_ref().map(held))
    }
}

/// Who asks for a place, and where.
#[derive(Debug, Clone, Copy)]
pub struct PlaceSeeker<'a> {
    pub order: &'a OrderId,
    pub service_type: &'a ServiceType,
    pub pickup: LatLng,
    /// As the producer names it.
    pub area: Option<&'a AreaId>,
    pub asker: AdmissionCaller<'a>,
}

/// Takes a place in the order's area, or says why there is none.
pub async fn take_place(app: &App, seeker: PlaceSeeker<'_>) -> Result<WaitingPlace, AdmissionAnswer> {
    let rules = app.rules.get();
    // Where it is counts more than what the producer calls it.
    let located = rules.geofence.find_area(seeker.pickup).map(|area| &area.id);
    let Some(area) = located.or_else(|| seeker.area.filter(|name| rules.geofence.get(name).is_some())) else {
        // Without areas, or while they decide nothing here, an area is a word of the producer's.
        if rules.refuses_outside(seeker.asker) {
            return Err(AdmissionAnswer::NoArea);
        }
        return Ok(WaitingPlace { area: seeker.area.cloned(), limit: None, lifetime: None });
    };
    let now = app.rules.database_now();
    let (limits, rule) = check::resolve_rule(&rules, area, seeker.service_type, seeker.asker, now);
    let lifetime = rules.durations_for(area, seeker.service_type).lifetime;
    let refuse = async |why: AdmissionRefusal, seen: AreaStanding| {
        let told = check::describe_area(app, &rules, area, seeker.service_type, seeker.asker, &limits, &seen);
        let nearby = check::find_nearby_areas(app, &rules, seeker.pickup, area, seeker.service_type).await;
        AdmissionAnswer::Refused(why, AreaDetails { nearby, ..told })
    };
    if let (AdmissionGate::Closed(why), false) = (rule.gate, rule.shadow) {
        count_decision(app, area, &seeker, "rejected").await;
        let seen = check::read_standing(app, area, seeker.service_type).await.unwrap_or_default();
        return Err(refuse(why, seen).await);
    }
    let waits = lifetime.unwrap_or_else(|| app.config.policy_for_type(seeker.service_type).lifetime);
    let at = AreaKey::new(area, seeker.service_type);
    let entry = waiting::enter_waiting_set(app, seeker.order, &at, waits, (rule.gate, rule.shadow), &limits).await;
    let limit = match entry {
        Some((PlaceOutcome::Full, standing)) if !rule.shadow => {
            count_decision(app, area, &seeker, "rejected").await;
            return Err(refuse(AdmissionRefusal::Full, AreaStanding { standing, ..AreaStanding::default() }).await);
        }
        Some((PlaceOutcome::Full, _)) => {
            count_decision(app, area, &seeker, "would_reject").await;
            None
        }
        Some((PlaceOutcome::Taken { bypassed }, _)) => {
            if bypassed {
                count_decision(app, area, &seeker, "bypassed").await;
            }
            room_for(rule)
        }
        // Postgres decides alone; and most of those whom it would refuse need not queue up for that.
        None => {
            let seen = check::read_standing(app, area, seeker.service_type).await.unwrap_or_default();
            if room_for(rule).is_some_and(|limit| seen.standing.waiting >= limit) && !rule.shadow {
                count_decision(app, area, &seeker, "rejected").await;
                return Err(refuse(AdmissionRefusal::Full, seen).await);
            }
            room_for(rule)
        }
    };
    if rule.shadow && matches!(rule.gate, AdmissionGate::Closed(_)) {
        count_decision(app, area, &seeker, "would_reject").await;
    }
    Ok(WaitingPlace { area: Some(area.clone()), limit: limit.filter(|_| !rule.shadow), lifetime })
}

/// Postgres has counted as many as may wait: the place is given back.
pub async fn refused_by_postgres(app: &App, seeker: PlaceSeeker<'_>, area: &AreaId) -> AdmissionAnswer {
    waiting::remove_order(app, area, seeker.service_type, seeker.order, None).await;
    count_decision(app, area, &seeker, "rejected").await;
    let rules = app.rules.get();
    let (limits, _) = check::resolve_rule(&rules, area, seeker.service_type, seeker.asker, app.rules.database_now());
    let waiting = waiting::count_waiting(&app.db, area, seeker.service_type).await.unwrap_or(limits.max_waiting);
    let mut seen = AreaStanding::default();
    seen.standing.waiting = waiting;
    let told = check::describe_area(app, &rules, area, seeker.service_type, seeker.asker, &limits, &seen);
    AdmissionAnswer::Refused(AdmissionRefusal::Full, told)
}

/// While fewer wait, as Postgres counts, this one is taken: a loyal customer has the loyal one's room.
fn room_for(rule: AdmissionRule) -> Option<i64> {
    match rule.gate {
        AdmissionGate::Counted { threshold, with_bypass } => Some(with_bypass.unwrap_or(threshold)),
        AdmissionGate::Open | AdmissionGate::Closed(_) => None,
    }
}

/// For metrics, and for the areas' snapshots.
async fn count_decision(app: &App, area: &AreaId, seeker: &PlaceSeeker<'_>, what: &'static str) {
    let labels = [("area_id", label::label_of(Some(area))), ("service_type", seeker.service_type.to_string())];
    counter!("dispatcher_threshold_reached_total", &labels).increment(1);
    let loyalty = seeker.asker.loyalty.map_or("none", LoyaltyLevel::as_str);
    let [area_id, service] = labels;
    match what {
        "rejected" => {
            let reason = ("reason", "server_busy".to_owned());
            counter!("dispatcher_cancel_total", &[area_id, service, reason]).increment(1);
        }
        "would_reject" => {
            let loyalty = ("loyalty", loyalty.to_owned());
            counter!("dispatchq_shadow_rejects_total", &[area_id, service, loyalty]).increment(1);
        }
        _ => {
            let loyalty = ("loyalty", loyalty.to_owned());
            counter!("dispatchq_bypasses_total", &[area_id, service, loyalty]).increment(1);
        }
    }
    let mut count = cmd("HINCRBY");
    count.arg(redis_keys::WAITING_COUNTS).arg(format!("{area}:{}:{what}", seeker.service_type)).arg(1);
    let _ = app.query_optional::<i64>("count refusal", &count).await;
}
