//! Reserves a place when an order is created. This is the decision that counts.
//!
//! 1. The gate: one script in Redis removes expired orders from the set, counts the rest, compares the count with the
//!    threshold and adds the order.
//! 2. The final check: in the transaction that inserts the row, Postgres also counts, under a lock for this area and
//!    service type. The threshold is therefore kept while Redis is unavailable, empty or behind.
//!
//! If the process dies in between, or the request is cancelled while its order is written, the place remains. The
//! reconciler compares the places with Postgres, and frees a place without an order within two minutes.

use std::time::Duration;

use jobs::OrderId;
use model::{
    admission::{
        answer::{AdmissionAnswer, AreaDetails},
        decide::{self, AdmissionCaller, AdmissionGate, AdmissionRefusal, AdmissionRule, AdmissionVerdict},
        verdicts::{AdmissionSource, RefusalCause, RequestVerdict},
    },
    ids::{AreaId, AreaKey, LatLng, ServiceType},
};

use crate::{
    admission::{
        check,
        count::{self, AreaCount, PlaceRequest},
        waiting::{self, PlaceOutcome},
    },
    capability::Areas,
    standings::AreaStanding,
};

/// Result of a reservation. If no area decides, no place is reserved.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingPlace {
    /// Area to which the order belongs.
    pub area: Option<AreaId>,
    /// Postgres inserts the order only while fewer orders wait than this; `None`: no check.
    pub limit: Option<i64>,
    /// Lifetime from the area, which replaces the lifetime from the service type.
    pub lifetime: Option<Duration>,
    /// Verdict of the area; `None`: no area decided.
    pub verdict: Option<RequestVerdict>,
    /// Load of the area at the time of the request.
    pub met: AreaCount,
}

/// A place in a Redis set, and its order.
#[derive(Debug)]
struct PlaceInSet {
    areas: Areas,
    at: AreaKey,
    order: OrderId,
}

impl PlaceInSet {
    async fn give_back(self) {
        waiting::remove_order(&self.areas.core, &self.at.area, &self.at.service_type, &self.order, None).await;
    }
}

/// A place in Redis for an order that is not being written yet. Dropping it frees the place.
#[derive(Debug)]
pub struct HeldPlace(Option<PlaceInSet>);

impl HeldPlace {
    /// Marks the start of the write. From now on the order may be in Postgres, even if the caller does not wait for the
    /// result.
    pub fn begin_write(mut self) -> WrittenPlace {
        WrittenPlace(self.0.take())
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        if let Some(place) = self.0.take() {
            tokio::spawn(place.give_back());
        }
    }
}

/// A place in Redis for an order that may have been written. Dropping it keeps the place; the reconciler frees the
/// place if it has no order.
#[derive(Debug)]
pub struct WrittenPlace(Option<PlaceInSet>);

impl WrittenPlace {
    /// Frees the place because the order was not written and will not be.
    pub async fn give_back(self) {
        if let Some(place) = self.0 {
            place.give_back().await;
        }
    }
}

impl WaitingPlace {
    /// Returns a guard that frees the place if it is dropped before the order's write starts.
    pub fn hold_for(&self, areas: &Areas, seeker: PlaceSeeker<'_>) -> HeldPlace {
        HeldPlace(self.area.as_ref().map(|area| PlaceInSet {
            areas: areas.clone(),
            at: AreaKey::new(area, seeker.service_type),
            order: seeker.order.clone(),
        }))
    }
}

/// An order that needs a place.
#[derive(Debug, Clone, Copy)]
pub struct PlaceSeeker<'a> {
    pub order: &'a OrderId,
    pub service_type: &'a ServiceType,
    pub pickup: LatLng,
    /// Area named by the producer.
    pub area: Option<&'a AreaId>,
    pub asker: AdmissionCaller<'a>,
}

impl<'a> PlaceSeeker<'a> {
    fn to_request(self, area: Option<&'a AreaId>) -> PlaceRequest<'a> {
        PlaceRequest {
            source: AdmissionSource::Create,
            area,
            service_type: self.service_type,
            caller: self.asker,
            order: Some(self.order),
        }
    }
}

/// Reserves a place in the order's area, or returns the reason for a refusal. This function counts a refusal;
/// [`record_taken`] counts a reservation after its order was written.
pub async fn take_place(areas: &Areas, seeker: PlaceSeeker<'_>) -> Result<WaitingPlace, AdmissionAnswer> {
    let rules = areas.rules.get();
    // The location has precedence over the area that the producer names.
    let located = rules.find_area(seeker.pickup, seeker.service_type).map(|area| &area.id);
    // Same as the check: a named area does not admit a pickup outside all areas.
    if located.is_none() && rules.refuses_outside(seeker.asker) {
        let outside = RequestVerdict::Refused(RefusalCause::Outside);
        count::record_verdict(areas, seeker.to_request(None), outside, AreaCount::default());
        return Err(AdmissionAnswer::NoArea);
    }
    let known = |name: &AreaId| rules.geofence.get(name).is_some_and(|area| area.serves(seeker.service_type));
    let Some(area) = located.or_else(|| seeker.area.filter(|name| known(name))) else {
        // Without areas, or while the flag does not cover this request, the area is only text from the producer.
        let area = seeker.area.cloned();
        return Ok(WaitingPlace { area, limit: None, lifetime: None, verdict: None, met: AreaCount::default() });
    };
    let now = areas.core.database_clock.now();
    let (limits, rule) = check::resolve_rule(&rules, area, seeker.service_type, seeker.asker, now);
    let lifetime = rules.durations_for(area, seeker.service_type).lifetime;
    let threshold = limits.max_waiting;
    let refuse = async |why: AdmissionRefusal, known: Option<AreaStanding>| {
        let verdict = RequestVerdict::Refused(why.into());
        let met = AreaCount { waiting: known.map(|seen| seen.standing.waiting), threshold };
        count::record_verdict(areas, seeker.to_request(Some(area)), verdict, met);
        let seen = known.unwrap_or_default();
        let told = check::describe_area(areas, &rules, area, seeker.service_type, seeker.asker, &limits, &seen);
        let nearby = check::find_nearby_areas(areas, &rules, seeker.pickup, area, seeker.service_type).await;
        AdmissionAnswer::Refused(why, AreaDetails { nearby, ..told })
    };
    if let AdmissionGate::Closed(why) = rule.gate {
        let known = check::read_standing(areas, area, seeker.service_type).await;
        return Err(refuse(why, known).await);
    }
    let waits = lifetime.unwrap_or_else(|| areas.config.policy_for_type(seeker.service_type).lifetime);
    let at = AreaKey::new(area, seeker.service_type);
    let entry = waiting::enter_waiting_set(
        &areas.core,
        seeker.order,
        &at,
        limits.counted_for(waits),
        (rule.gate, rule.shadow),
        &limits,
    )
    .await;
    let (verdict, known) = match entry {
        Some((outcome, standing)) => {
            let verdict = match outcome {
                PlaceOutcome::Full => AdmissionVerdict::Refused(AdmissionRefusal::Full),
                PlaceOutcome::Taken { bypassed: true } => AdmissionVerdict::Bypassed,
                PlaceOutcome::Taken { bypassed: false } => AdmissionVerdict::Taken,
            };
            (verdict, Some(AreaStanding { standing, ..AreaStanding::default() }))
        }
        // Postgres decides alone. Orders that it would refuse are refused here, so that most of them do not queue for
        // its lock.
        None => {
            let known = check::read_standing(areas, area, seeker.service_type).await;
            let standing = known.unwrap_or_default().standing_under(&limits);
            (decide::decide_admission(rule.gate, &limits, standing, now), known)
        }
    };
    if let (AdmissionVerdict::Refused(why), false) = (verdict, rule.shadow) {
        return Err(refuse(why, known).await);
    }
    Ok(WaitingPlace {
        area: Some(area.clone()),
        limit: room_for(rule).filter(|_| !rule.shadow),
        lifetime,
        verdict: Some(RequestVerdict::new(verdict, rule.shadow)),
        met: AreaCount { waiting: known.map(|seen| seen.standing.waiting), threshold },
    })
}

/// Counts an order that has been written and has its place.
pub fn record_taken(areas: &Areas, seeker: PlaceSeeker<'_>, place: &WaitingPlace) {
    if let Some(verdict) = place.verdict {
        count::record_verdict(areas, seeker.to_request(place.area.as_ref()), verdict, place.met);
    }
}

/// Counts a creation that failed because neither Redis nor Postgres could decide.
pub fn record_undecided(areas: &Areas, service_type: &ServiceType, pickup: LatLng, asker: AdmissionCaller<'_>) {
    let rules = areas.rules.get();
    let area = rules.find_area(pickup, service_type).map(|area| &area.id);
    let request = PlaceRequest { source: AdmissionSource::Create, area, service_type, caller: asker, order: None };
    count::record_verdict(areas, request, RequestVerdict::Refused(RefusalCause::Unavailable), AreaCount::default());
}

/// Frees the place after Postgres counted too many waiting orders, counts the refusal and returns the answer.
pub async fn refused_by_postgres(areas: &Areas, seeker: PlaceSeeker<'_>, area: &AreaId) -> AdmissionAnswer {
    waiting::remove_order(&areas.core, area, seeker.service_type, seeker.order, None).await;
    let rules = areas.rules.get();
    let (limits, _) =
        check::resolve_rule(&rules, area, seeker.service_type, seeker.asker, areas.core.database_clock.now());
    let waiting = waiting::count_waiting(&areas.core.db, area, seeker.service_type).await.unwrap_or(limits.max_waiting);
    let met = AreaCount { waiting: Some(waiting), threshold: limits.max_waiting };
    let full = RequestVerdict::Refused(RefusalCause::Threshold);
    count::record_verdict(areas, seeker.to_request(Some(area)), full, met);
    let mut seen = AreaStanding::default();
    seen.standing.waiting = waiting;
    let told = check::describe_area(areas, &rules, area, seeker.service_type, seeker.asker, &limits, &seen);
    let nearby = check::find_nearby_areas(areas, &rules, seeker.pickup, area, seeker.service_type).await;
    AdmissionAnswer::Refused(AdmissionRefusal::Full, AreaDetails { nearby, ..told })
}

/// Returns the count below which Postgres admits the order. It is higher for a caller with a bypass.
fn room_for(rule: AdmissionRule) -> Option<i64> {
    match rule.gate {
        AdmissionGate::Counted { threshold, with_bypass } => Some(with_bypass.unwrap_or(threshold)),
        AdmissionGate::Open | AdmissionGate::Closed(_) => None,
    }
}
