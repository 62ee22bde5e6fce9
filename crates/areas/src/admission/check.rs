//! Advice, before an order is created, on whether there is room. The advice may be up to a tenth of a second old. Only
//! the creation of the order decides.

use chrono::{DateTime, Utc};
use model::{
    admission::{
        answer::{AdmissionAnswer, AreaDetails, NearbyArea},
        decide::{self, AdmissionCaller, AdmissionGate, AdmissionRefusal, AdmissionVerdict, AreaLoad, AreaTerms},
        limits::AreaLimits,
        verdicts::{AdmissionSource, RefusalCause, RequestVerdict},
    },
    ids::{AreaId, AreaKey, LatLng, ServiceType},
    order::Order,
    policy::DispatchPolicy,
};

use crate::{
    admission::{
        count::{self, AreaCount, PlaceRequest},
        waiting,
    },
    capability::Areas,
    rules::AdmissionRules,
    standings::AreaStanding,
};

/// Maximum number of areas with room that a refusal lists.
const NEARBY: usize = 3;
/// Number of nearest areas that are checked for room.
const NEARBY_LOOKED_AT: usize = 8;

/// Returns whether an order from this pickup would be admitted, and counts the verdict.
pub async fn preview_admission(
    areas: &Areas,
    pickup: LatLng,
    service_type: &ServiceType,
    asker: AdmissionCaller<'_>,
) -> AdmissionAnswer {
    let rules = areas.rules.get();
    let request = PlaceRequest { source: AdmissionSource::Check, area: None, service_type, caller: asker, order: None };
    let Some(area) = rules.find_area(pickup, service_type).map(|area| area.id.clone()) else {
        if !rules.refuses_outside(asker) {
            return AdmissionAnswer::Anywhere;
        }
        count::record_verdict(areas, request, RequestVerdict::Refused(RefusalCause::Outside), AreaCount::default());
        return AdmissionAnswer::NoArea;
    };
    let request = PlaceRequest { area: Some(&area), ..request };
    let known = read_standing(areas, &area, service_type).await;
    let now = areas.core.database_clock.now();
    let (limits, rule) = resolve_rule(&rules, &area, service_type, asker, now);
    let met = AreaCount { waiting: known.map(|seen| seen.standing.waiting), threshold: limits.max_waiting };
    // A forced state applies even while the orders cannot be counted.
    let Some(seen) = known.or_else(|| matches!(rule.gate, AdmissionGate::Closed(_)).then(AreaStanding::default)) else {
        count::record_verdict(areas, request, RequestVerdict::Refused(RefusalCause::Unavailable), met);
        return AdmissionAnswer::Unavailable;
    };
    let verdict = decide::decide_admission(rule.gate, &limits, seen.standing_under(&limits), now);
    count::record_verdict(areas, request, RequestVerdict::new(verdict, rule.shadow), met);
    let told = describe_area(areas, &rules, &area, service_type, asker, &limits, &seen);
    match verdict {
        AdmissionVerdict::Bypassed => AdmissionAnswer::Bypassed(told),
        AdmissionVerdict::Refused(why) if !rule.shadow => {
            let nearby = find_nearby_areas(areas, &rules, pickup, &area, service_type).await;
            AdmissionAnswer::Refused(why, AreaDetails { nearby, ..told })
        }
        AdmissionVerdict::Taken | AdmissionVerdict::Refused(_) => AdmissionAnswer::Available(told),
    }
}

/// Returns the limits of an area, and the rule that applies to this caller.
pub(super) fn resolve_rule(
    rules: &AdmissionRules,
    area: &AreaId,
    service_type: &ServiceType,
    asker: AdmissionCaller<'_>,
    now: DateTime<Utc>,
) -> (AreaLimits, decide::AdmissionRule) {
    let limits = rules.limits_at(area, service_type, now);
    let terms = AreaTerms { area, limits: &limits, forced: rules.override_for(area), flag: &rules.flag };
    let rule = decide::rule_for_caller(terms, asker, now);
    (limits, rule)
}

/// Returns the details of an area for an answer.
pub(super) fn describe_area(
    areas: &Areas,
    rules: &AdmissionRules,
    area: &AreaId,
    service_type: &ServiceType,
    asker: AdmissionCaller<'_>,
    limits: &AreaLimits,
    seen: &AreaStanding,
) -> AreaDetails {
    let policy = areas.config.policy_for_type(service_type);
    let durations = rules.durations_for(area, service_type);
    let lifetime = durations.lifetime.unwrap_or(policy.lifetime);
    // If no driver was assigned recently, the estimated wait is the duration of one attempt.
    let estimated = seen.average_wait_s.unwrap_or(durations.attempt.unwrap_or(policy.attempt).as_secs_f64());
    let oldest = seen.oldest_expiry_ms.and_then(DateTime::from_timestamp_millis);
    AreaDetails {
        area_id: area.clone(),
        waiting: seen.standing.waiting,
        threshold: limits.max_waiting,
        with_bypass: limits.may_bypass(asker.loyalty).then(|| limits.max_with_bypass()),
        loyalty: asker.loyalty,
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds, and it saturates")]
        estimated_wait_sec: estimated.round() as u64,
        retry_after_sec: limits.busy_retry.as_secs(),
        oldest_waiting_since: oldest.map(|until| until - limits.counted_for(lifetime)),
        reason: rules
            .override_for(area)
            .filter(|forced| forced.is_in_force(areas.core.database_clock.now()))
            .map(|forced| forced.reason.clone()),
        nearby: Vec::new(),
    }
}

/// Returns the state of an area, at most a tenth of a second old, or `None` if it is unknown.
pub(super) async fn read_standing(areas: &Areas, area: &AreaId, service_type: &ServiceType) -> Option<AreaStanding> {
    let key = AreaKey::new(area, service_type);
    if let Some(seen) = areas.standings.read_fresh(&key) {
        return Some(seen);
    }
    let seen = match waiting::read_counts(&areas.core, area, service_type).await {
        Some(seen) => seen,
        None => {
            let waiting = waiting::count_waiting(&areas.core.db, area, service_type).await.ok()?;
            AreaStanding { standing: AreaLoad { waiting, busy_since: None }, ..AreaStanding::default() }
        }
    };
    areas.standings.remember(key, seen);
    Some(seen)
}

/// Returns the nearest areas that would admit an order from any caller. Source: the requirement's second open question.
pub(super) async fn find_nearby_areas(
    areas: &Areas,
    rules: &AdmissionRules,
    pickup: LatLng,
    full: &AreaId,
    service_type: &ServiceType,
) -> Vec<NearbyArea> {
    let mut found = Vec::new();
    let mut nearest = rules.geofence.nearest_areas(pickup);
    nearest.retain(|(area, _)| area.serves(service_type));
    for (area, distance_m) in nearest.into_iter().take(NEARBY_LOOKED_AT) {
        if area.id == *full || found.len() == NEARBY {
            continue;
        }
        let (limits, rule) =
            resolve_rule(rules, &area.id, service_type, AdmissionCaller::default(), areas.core.database_clock.now());
        let has_room = match rule.gate {
            AdmissionGate::Closed(_) => false,
            AdmissionGate::Open => true,
            AdmissionGate::Counted { .. } => match read_standing(areas, &area.id, service_type).await {
                Some(seen) => {
                    decide::decide_admission(
                        rule.gate,
                        &limits,
                        seen.standing_under(&limits),
                        areas.core.database_clock.now(),
                    ) == AdmissionVerdict::Taken
                }
                None => false,
            },
        };
        if has_room {
            found.push(NearbyArea { area_id: area.id.clone(), name: area.name.clone(), distance_m });
        }
    }
    found
}

/// Returns the policy for an order whose search is about to pause. In a full area the pause is longer.
pub async fn policy_for_pause(areas: &Areas, order: &Order) -> DispatchPolicy {
    let policy = areas.policy_for_order(order);
    let Some(area) = &order.area_id else { return policy };
    if !is_full(areas, area, order).await {
        return policy;
    }
    let retry = areas.rules.get().limits_for(area, &order.service_type).busy_retry;
    DispatchPolicy { retry: vec![retry], ..policy }
}

/// Returns whether the area now refuses other orders from this channel and customer; false in shadow mode. The order is
/// already searching, so it can wait for this query.
async fn is_full(areas: &Areas, area: &AreaId, order: &Order) -> bool {
    let rules = areas.rules.get();
    let caller =
        AdmissionCaller { channel: order.channel.as_deref(), user: order.customer_id.as_deref(), loyalty: None };
    let now = areas.core.database_clock.now();
    let (limits, rule) = resolve_rule(&rules, area, &order.service_type, caller, now);
    let (AdmissionGate::Counted { .. }, false) = (rule.gate, rule.shadow) else { return false };
    match read_standing(areas, area, &order.service_type).await {
        Some(seen) => {
            decide::decide_admission(rule.gate, &limits, seen.standing_under(&limits), now)
                == AdmissionVerdict::Refused(AdmissionRefusal::Full)
        }
        None => false,
    }
}
