//! Admission results that a producer got, counted by answer.

use std::{collections::BTreeMap, sync::Arc};

use model::admission::{
    answer::{AREA_DISABLED, THRESHOLD_REACHED},
    verdicts::{AdmissionSource, waiting_level},
};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Kinds of counts of an area. Requests that no server could decide are only in `Refused`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlaceLine {
    ChecksRefused,
    CreationsRefused,
    /// Refused checks and creations, whatever the cause.
    Refused,
    ChecksBypassed,
    CreationsBypassed,
    Bypassed,
    ChecksInShadow,
    CreationsInShadow,
    /// Requests that shadow mode admitted.
    InShadow,
    /// Requests refused because the area is busy or disabled.
    ServerBusy,
    /// Requests that met a full area, refused or not.
    ThresholdReached,
    /// Checks whose answer contained the number of waiting orders.
    Checks,
    /// Sum of the numbers in these answers, each rounded by `waiting_level`.
    WaitingMet,
    /// Maximum of the numbers in these answers.
    MostWaiting,
}

/// Counts by area; the empty area stands for requests outside all areas. Zero counts are omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct PlaceCounts(BTreeMap<String, BTreeMap<PlaceLine, i64>>);

impl PlaceCounts {
    pub(crate) fn get(&self, area: &str, line: PlaceLine) -> i64 {
        self.0.get(area).and_then(|lines| lines.get(&line)).copied().unwrap_or(0)
    }

    pub(crate) fn areas(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the sum over all areas.
    pub(crate) fn total(&self, line: PlaceLine) -> i64 {
        self.areas().map(|area| self.get(area, line)).sum()
    }

    pub(crate) fn add(&mut self, area: &str, line: PlaceLine, count: i64) {
        if count != 0 {
            *self.0.entry(area.to_owned()).or_default().entry(line).or_default() += count;
        }
    }

    /// Counts checks whose answer contained this number of waiting orders.
    pub(crate) fn add_checks(&mut self, area: &str, waiting: i64, checks: i64) {
        let level = waiting_level(waiting);
        self.add(area, PlaceLine::Checks, checks);
        self.add(area, PlaceLine::WaitingMet, level * checks);
        let most = self.get(area, PlaceLine::MostWaiting);
        self.add(area, PlaceLine::MostWaiting, level.max(most) - most);
    }
}

/// Counts the answers to one producer. Cheap to clone; clones share the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlaceLog(Arc<Mutex<ToldPlaces>>);

#[derive(Debug, Clone, Default)]
pub(crate) struct ToldPlaces {
    pub(crate) counts: PlaceCounts,
    /// Requests without an answer, which a server may have counted.
    pub(crate) unanswered: u64,
}

impl PlaceLog {
    pub(crate) fn read_counts(&self) -> ToldPlaces {
        self.lock_counts().clone()
    }

    pub(crate) fn record_silence(&self) {
        self.lock_counts().unanswered += 1;
    }

    /// Counts the body of an answer. Errors that do not concern an area are not counted.
    pub(crate) fn record_answer(&self, source: AdmissionSource, body: &Value) {
        let code = body["error_code"].as_str();
        if code.is_some_and(|code| !is_refused_for_area(code)) {
            return;
        }
        let area = body["area_id"].as_str().unwrap_or_default();
        let is_check = source == AdmissionSource::Check;
        let is_bypassed = body["bypassed"] == true || body["admission"] == "BYPASSED";
        let line = match code {
            Some(_) if is_check => Some(PlaceLine::ChecksRefused),
            Some(_) => Some(PlaceLine::CreationsRefused),
            None if is_bypassed && is_check => Some(PlaceLine::ChecksBypassed),
            None if is_bypassed => Some(PlaceLine::CreationsBypassed),
            None => (body["admission"] == "WOULD_REFUSE").then_some(PlaceLine::CreationsInShadow),
        };
        let mut told = self.lock_counts();
        if let Some(line) = line {
            told.counts.add(area, line, 1);
        }
        if code.is_some_and(|code| [THRESHOLD_REACHED, AREA_DISABLED].contains(&code)) {
            told.counts.add(area, PlaceLine::ServerBusy, 1);
        }
        if let (true, Some(waiting)) = (is_check, body["current_waiting"].as_i64()) {
            told.counts.add_checks(area, waiting, 1);
        }
    }

    fn lock_counts(&self) -> MutexGuard<'_, ToldPlaces> {
        self.0.lock()
    }
}

/// Returns whether the code refuses an order because of its area. The refusal is final, even with a Retry-After.
pub(crate) fn is_refused_for_area(code: &str) -> bool {
    code.starts_with("DISPATCHER_AREA_")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_counted_by_result() {
        use AdmissionSource::{Check, Create};
        let log = PlaceLog::default();
        let busy =
            |waiting: i64| json!({ "error_code": THRESHOLD_REACHED, "area_id": "A", "current_waiting": waiting });
        log.record_answer(Check, &json!({ "area_id": "A", "current_waiting": 3 }));
        log.record_answer(Check, &json!({ "area_id": "A", "current_waiting": 53, "bypassed": true }));
        log.record_answer(Check, &busy(7));
        log.record_answer(Create, &busy(7));
        log.record_answer(Create, &json!({ "area_id": "A", "admission": "TAKEN" }));
        log.record_answer(Create, &json!({ "area_id": "A", "admission": "BYPASSED" }));
        log.record_answer(Create, &json!({ "area_id": "A", "admission": "WOULD_REFUSE" }));
        log.record_answer(Check, &json!({ "error_code": "DISPATCHER_AREA_NOT_FOUND" }));
        log.record_answer(Check, &json!({ "error_code": "DISPATCHER_SERVICE_UNAVAILABLE" }));
        log.record_answer(Create, &json!({ "error_code": "UNAVAILABLE" }));
        log.record_silence();
        let told = log.read_counts();
        assert_eq!(told.unanswered, 1);
        let expected = json!({
            "": { "checks_refused": 1 },
            "A": { "checks_refused": 1, "creations_refused": 1, "checks_bypassed": 1, "creations_bypassed": 1,
                   "creations_in_shadow": 1, "server_busy": 2, "checks": 3, "waiting_met": 60, "most_waiting": 50 },
        });
        assert_eq!(serde_json::to_value(&told.counts).unwrap(), expected);
        assert_eq!((told.counts.total(PlaceLine::ChecksRefused), told.counts.get("B", PlaceLine::Checks)), (2, 0));
    }
}
