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

use chrono::{DateTime, Utc};
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
    rules::AdmissionRules,
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
    /// Limit of a scheduled order's hour; `None`: no check.
    pub hour: Option<HourLimit>,
}

/// Limit of scheduled orders with a pickup in the same hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HourLimit {
    pub from: DateTime<Utc>,
    pub limit: i64,
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
        // Without a verdict, no place was taken.
        let area = self.area.as_ref().filter(|_| self.verdict.is_some());
        HeldPlace(area.map(|area| PlaceInSet {
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
    let Some(area) = locate(areas, &rules, seeker)? else { return Ok(place_outside(seeker)) };
    match seek_place(areas, &rules, area, seeker).await {
        Ok(place) => Ok(place),
        Err((why, known)) => Err(refuse(areas, &rules, seeker, area, why, known).await),
    }
}

/// Returns the place of an order whose area does not decide. Without areas, or while the flag does not cover the request,
/// the area is only text from the producer.
fn place_outside(seeker: PlaceSeeker<'_>) -> WaitingPlace {
    let area = seeker.area.cloned();
    WaitingPlace { area, limit: None, lifetime: None, verdict: None, met: AreaCount::default(), hour: None }
}

/// The pickup is outside all areas, and such orders are refused.
struct OutsideAreas;

impl From<OutsideAreas> for AdmissionAnswer {
    fn from(OutsideAreas: OutsideAreas) -> Self {
        Self::NoArea
    }
}

/// Returns the area of the order; `None` if no area decides. The location has precedence over the area that the producer
/// names.
fn locate<'a>(
    areas: &Areas,
    rules: &'a AdmissionRules,
    seeker: PlaceSeeker<'a>,
) -> Result<Option<&'a AreaId>, OutsideAreas> {
    let located = rules.find_area(seeker.pickup, seeker.service_type).map(|area| &area.id);
    // As in the availability check, the producer's area does not admit a pickup that is outside all areas.
    if located.is_none() && rules.refuses_outside(seeker.asker) {
        let outside = RequestVerdict::Refused(RefusalCause::Outside);
        count::record_verdict(areas, seeker.to_request(None), outside, AreaCount::default());
        return Err(OutsideAreas);
    }
    Ok(located.or_else(|| seeker.area.filter(|name| is_served(rules, name, seeker.service_type))))
}

fn is_served(rules: &AdmissionRules, area: &AreaId, service_type: &ServiceType) -> bool {
    rules.geofence.get(area).is_some_and(|area| area.serves(service_type))
}

/// Counts a refusal by this area and returns its answer. `known` is the load of the area.
async fn refuse(
    areas: &Areas,
    rules: &AdmissionRules,
    seeker: PlaceSeeker<'_>,
    area: &AreaId,
    why: AdmissionRefusal,
    known: Option<AreaStanding>,
) -> AdmissionAnswer {
    let now = areas.core.database_clock.now();
    let (limits, _) = check::resolve_rule(rules, area, seeker.service_type, seeker.asker, now);
    let met = AreaCount { waiting: known.map(|seen| seen.standing.waiting), threshold: limits.max_waiting };
    count::record_verdict(areas, seeker.to_request(Some(area)), RequestVerdict::Refused(why.into()), met);
    let seen = known.unwrap_or_default();
    let told = check::describe_area(areas, rules, area, seeker.service_type, seeker.asker, &limits, &seen);
    let nearby = check::find_nearby_areas(areas, rules, seeker.pickup, area, seeker.service_type).await;
    AdmissionAnswer::Refused(why, AreaDetails { nearby, ..told })
}

/// Takes a place in this area, or returns the reason for a refusal and the load of the area.
async fn seek_place(
    areas: &Areas,
    rules: &AdmissionRules,
    area: &AreaId,
    seeker: PlaceSeeker<'_>,
) -> Result<WaitingPlace, (AdmissionRefusal, Option<AreaStanding>)> {
    let now = areas.core.database_clock.now();
    let (limits, rule) = check::resolve_rule(rules, area, seeker.service_type, seeker.asker, now);
    let lifetime = rules.durations_for(area, seeker.service_type).lifetime;
    let threshold = limits.max_waiting;
    if let AdmissionGate::Closed(why) = rule.gate {
        return Err((why, check::read_standing(areas, area, seeker.service_type).await));
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
        return Err((why, known));
    }
    Ok(WaitingPlace {
        area: Some(area.clone()),
        limit: room_for(rule).filter(|_| !rule.shadow),
        lifetime,
        verdict: Some(RequestVerdict::new(verdict, rule.shadow)),
        met: AreaCount { waiting: known.map(|seen| seen.standing.waiting), threshold },
        hour: None,
    })
}

/// Returns the place of an order that is created for later. It does not count as waiting yet, so only the limit of its
/// hour applies, which Postgres checks.
pub async fn schedule(
    areas: &Areas,
    seeker: PlaceSeeker<'_>,
    pickup_at: DateTime<Utc>,
) -> Result<WaitingPlace, AdmissionAnswer> {
    let rules = areas.rules.get();
    let Some(area) = locate(areas, &rules, seeker)? else { return Ok(place_outside(seeker)) };
    let lifetime = rules.durations_for(area, seeker.service_type).lifetime;
    let hour = hour_limit(areas, &rules, area, seeker.service_type, pickup_at);
    let place = WaitingPlace { area: Some(area.clone()), lifetime, hour, ..place_outside(seeker) };
    // Most refusals need no lock. The creation counts again.
    match hour {
        Some(hour) if !has_room_in_hour(areas, area, seeker.service_type, hour).await => {
            Err(refuse_hour(areas, seeker, area, hour).await)
        }
        _ => Ok(place),
    }
}

/// Returns the limit of the hour of this pickup, on the clock of the area.
pub fn hour_limit(
    areas: &Areas,
    rules: &AdmissionRules,
    area: &AreaId,
    service_type: &ServiceType,
    pickup_at: DateTime<Utc>,
) -> Option<HourLimit> {
    let limit = rules.limits_for(area, service_type).max_scheduled_per_hour?;
    let own_zone = rules.geofence.get(area).and_then(|area| area.time_zone);
    let zone = own_zone.unwrap_or(areas.config.admission.time_zone);
    Some(HourLimit { from: zone.hour_start(pickup_at), limit })
}

/// Returns whether another order may be scheduled in this hour; true if Postgres does not answer.
pub async fn has_room_in_hour(areas: &Areas, area: &AreaId, service_type: &ServiceType, hour: HourLimit) -> bool {
    let scheduled = waiting::count_scheduled(&areas.core.db, area, service_type, hour.from).await;
    scheduled.map_or(true, |scheduled| scheduled < hour.limit)
}

/// Returns the answer if the hour of the new pickup `to` is full. An order that stays in its hour keeps its place.
pub async fn find_full_hour(
    areas: &Areas,
    seeker: PlaceSeeker<'_>,
    area: &AreaId,
    (from, to): (Option<DateTime<Utc>>, DateTime<Utc>),
) -> Option<AdmissionAnswer> {
    let rules = areas.rules.get();
    let hour_of = |at| hour_limit(areas, &rules, area, seeker.service_type, at);
    let hour = hour_of(to)?;
    if from.and_then(hour_of) == Some(hour) || has_room_in_hour(areas, area, seeker.service_type, hour).await {
        return None;
    }
    Some(refuse_hour(areas, seeker, area, hour).await)
}

/// Counts a refusal because the hour of a scheduled order is full, and returns its answer.
pub async fn refuse_hour(areas: &Areas, seeker: PlaceSeeker<'_>, area: &AreaId, hour: HourLimit) -> AdmissionAnswer {
    let answer = refuse(areas, &areas.rules.get(), seeker, area, AdmissionRefusal::Full, None).await;
    let AdmissionAnswer::Refused(why, told) = answer else { return answer };
    let (waiting, threshold) = (hour.limit, hour.limit);
    AdmissionAnswer::Refused(why, AreaDetails { waiting, threshold, with_bypass: None, nearby: Vec::new(), ..told })
}

/// Result of asking for a place at the start of a scheduled order.
#[derive(Debug, Clone, PartialEq)]
pub enum StartPlace {
    Taken(WaitingPlace),
    Refused(AdmissionRefusal),
}

/// Takes a place in the area of a scheduled order whose dispatch is to start. The area was found at its creation. A
/// refusal is counted only if it `is_first`, because the order asks again by itself.
pub async fn take_place_at_start(areas: &Areas, seeker: PlaceSeeker<'_>, is_first: bool) -> StartPlace {
    let rules = areas.rules.get();
    let Some(area) = seeker.area.filter(|area| is_served(&rules, area, seeker.service_type)) else {
        return StartPlace::Taken(place_outside(seeker));
    };
    match seek_place(areas, &rules, area, seeker).await {
        Ok(place) => StartPlace::Taken(place),
        Err((why, known)) => {
            if is_first {
                record_refused_start(areas, seeker, area, why, known.map(|seen| seen.standing.waiting));
            }
            StartPlace::Refused(why)
        }
    }
}

/// Counts the first refusal at the start of a scheduled order.
pub fn record_refused_start(
    areas: &Areas,
    seeker: PlaceSeeker<'_>,
    area: &AreaId,
    why: AdmissionRefusal,
    waiting: Option<i64>,
) {
    let now = areas.core.database_clock.now();
    let threshold = areas.rules.get().limits_at(area, seeker.service_type, now).max_waiting;
    let met = AreaCount { waiting, threshold };
    count::record_verdict(areas, seeker.to_request(Some(area)), RequestVerdict::Refused(why.into()), met);
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
