//! The advice before an order: is there room? It may be up to a tenth of a second old; what counts is the order's creation.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};

use super::{
    answer::{Answer, NearbyArea, Told},
    decide::{self, Asker, Gate, Refused, Standing, Terms, Verdict},
    limits::Limits,
    rules::Rules,
    waiting::{self, Seen},
};
use crate::app::App;

/// An advice may be so old.
const FRESH: Duration = Duration::from_millis(100);
/// The first request that finds a count too old asks again, and the others take the old one for so long.
const GRACE: Duration = Duration::from_millis(40);
/// Areas with room that a refusal names, among so many of the nearest.
const NEARBY: usize = 3;
const NEARBY_LOOKED_AT: usize = 8;

/// What was last seen of each area and service type. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Standings(Arc<Mutex<Known>>);

/// By area and service type.
type Known = HashMap<(String, String), Look>;

#[derive(Debug, Clone, Copy)]
struct Look {
    seen_at: Instant,
    /// A request asks again since then.
    asked_at: Instant,
    seen: Seen,
}

/// Whether an order from here would be taken.
pub async fn advise(app: &App, (lat, lng): (f64, f64), service_type: &str, asker: Asker<'_>) -> Answer {
    let rules = app.rules.get();
    let Some(area) = rules.geofence.locate(lat, lng).map(|area| area.id.clone()) else {
        return if rules.refuses_outside(asker) { Answer::NoArea } else { Answer::Anywhere };
    };
    let Some(seen) = seen(app, &area, service_type).await else { return Answer::Unavailable };
    let now = app.rules.now();
    let (limits, rule) = terms(&rules, &area, service_type, asker, now);
    let verdict = decide::verdict(rule.gate, &limits, seen.by(&limits), now);
    let told = told(app, &rules, &area, service_type, asker, &limits, &seen);
    match verdict {
        Verdict::Bypassed => Answer::Bypassed(told),
        Verdict::Refused(why) if !rule.shadow => {
            let nearby = nearby(app, &rules, (lat, lng), &area, service_type).await;
            Answer::Refused(why, Told { nearby, ..told })
        }
        Verdict::Taken | Verdict::Refused(_) => Answer::Available(told),
    }
}

/// The limits of an area, and what holds there for this asker.
pub(super) fn terms(
    rules: &Rules,
    area: &str,
    service_type: &str,
    asker: Asker<'_>,
    now: DateTime<Utc>,
) -> (Limits, decide::Rule) {
    let limits = rules.limits(area, service_type).clone();
    let terms = Terms { area, limits: &limits, forced: rules.forced(area), flag: &rules.flag };
    let rule = decide::rule(terms, asker, now);
    (limits, rule)
}

/// What an answer tells of the area.
pub(super) fn told(
    app: &App,
    rules: &Rules,
    area: &str,
    service_type: &str,
    asker: Asker<'_>,
    limits: &Limits,
    seen: &Seen,
) -> Told {
    let policy = app.config.policy(service_type);
    let durations = rules.durations(area, service_type);
    let lifetime = durations.lifetime.unwrap_or(policy.lifetime);
    // No driver was assigned lately: one attempt is what an order can expect.
    let estimated = seen.average_wait_s.unwrap_or(durations.attempt.unwrap_or(policy.attempt).as_secs_f64());
    let oldest = seen.oldest_expiry_ms.and_then(DateTime::from_timestamp_millis);
    Told {
        area_id: area.to_owned(),
        waiting: seen.standing.waiting,
        threshold: limits.max_waiting,
        with_bypass: limits.may_bypass(asker.loyalty).then(|| limits.max_with_bypass()),
        loyalty: asker.loyalty,
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds, and it saturates")]
        estimated_wait_sec: estimated.round() as u64,
        retry_after_sec: limits.busy_retry.as_secs(),
        oldest_waiting_since: oldest.map(|expiry| expiry - lifetime),
        reason: rules.forced(area).filter(|forced| forced.holds(app.rules.now())).map(|forced| forced.reason.clone()),
        nearby: Vec::new(),
    }
}

/// How an area stands, as of the last tenth of a second; `None`: unknown.
pub(super) async fn seen(app: &App, area: &str, service_type: &str) -> Option<Seen> {
    let key = (area.to_owned(), service_type.to_owned());
    {
        let mut known = app.standings.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(look) = known.get_mut(&key) {
            let age = look.seen_at.elapsed();
            if age < FRESH || (age < FRESH + GRACE && look.asked_at.elapsed() < GRACE) {
                return Some(look.seen);
            }
            // This one asks again; others may take the old one a moment longer.
            look.asked_at = Instant::now();
        }
    }
    let seen = match waiting::read_counts(app, area, service_type).await {
        Some(seen) => seen,
        None => {
            let waiting = waiting::counted(&app.db, area, service_type).await.ok()?;
            Seen { standing: Standing { waiting, busy_since: None }, ..Seen::default() }
        }
    };
    app.standings
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(key, Look { seen_at: Instant::now(), asked_at: Instant::now(), seen });
    Some(seen)
}

/// The nearest areas that would take an order of anybody. Source: the requirement's second open question.
pub(super) async fn nearby(
    app: &App,
    rules: &Rules,
    (lat, lng): (f64, f64),
    full: &str,
    service_type: &str,
) -> Vec<NearbyArea> {
    let mut found = Vec::new();
    for (area, distance_m) in rules.geofence.nearest(lat, lng).into_iter().take(NEARBY_LOOKED_AT) {
        if area.id == full || found.len() == NEARBY {
            continue;
        }
        let (limits, rule) = terms(rules, &area.id, service_type, Asker::default(), app.rules.now());
        let has_room = match rule.gate {
            Gate::Closed(_) => false,
            Gate::Open => true,
            Gate::Counted { .. } => match seen(app, &area.id, service_type).await {
                Some(seen) => decide::verdict(rule.gate, &limits, seen.by(&limits), app.rules.now()) == Verdict::Taken,
                None => false,
            },
        };
        if has_room {
            found.push(NearbyArea { area_id: area.id.clone(), name: area.name.clone(), distance_m });
        }
    }
    found
}

/// Is the area full right now? For orders that search on, and may take their time.
pub async fn is_full(app: &App, area: &str, service_type: &str) -> bool {
    let rules = app.rules.get();
    let (limits, rule) = terms(&rules, area, service_type, Asker::default(), app.rules.now());
    let Gate::Counted { .. } = rule.gate else { return false };
    match seen(app, area, service_type).await {
        Some(seen) => {
            decide::verdict(rule.gate, &limits, seen.by(&limits), app.rules.now()) == Verdict::Refused(Refused::Full)
        }
        None => false,
    }
}
