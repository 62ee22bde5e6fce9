//! The race for one order.

use std::{sync::Arc, time::Instant};

use jobs::OrderId;
use serde_json::{Value, json};
use tokio::{runtime::Handle, sync::Barrier, task::JoinSet};

use super::answers::RefusalTimes;
use crate::{
    bench::spread::{SamplePercentiles, duration_micros, round_to_digits},
    testbed::{api::error_and_detail, drivers::SimulatedDriver},
};
use model::ids::OfferId;

/// Error codes for drivers that lose the race.
const BEATEN: [&str; 2] = ["RESERVATION_IN_PROGRESS", "ALREADY_ASSIGNED"];

/// Answers to the drivers of one order or of many orders.
#[derive(Debug, Clone, Default)]
pub(super) struct RaceTally {
    pub(super) orders: u32,
    /// Times of winners from the request to the answer, in microseconds.
    pub(super) winners_us: Vec<i64>,
    /// Times of losers from the request to the answer, in microseconds.
    pub(super) losers_us: Vec<i64>,
    /// Server time of refusals, in microseconds: from the head of the request to the answer.
    pub(super) refusals_us: Vec<i64>,
    /// Other answers.
    pub(super) others: Vec<String>,
    /// Orders that more than one driver won.
    pub(super) doubled: u32,
    /// Number of UPDATE statements on orders.
    pub(super) updates: u64,
}

impl RaceTally {
    pub(super) fn add_race(&mut self, race: Self) {
        self.orders += race.orders;
        self.winners_us.extend(race.winners_us);
        self.losers_us.extend(race.losers_us);
        self.refusals_us.extend(race.refusals_us);
        self.others.extend(race.others);
        self.doubled += race.doubled;
        self.updates += race.updates;
    }

    /// Returns a violation unless each order had exactly one winner and all other drivers were refused.
    pub(super) fn find_violation(&self) -> Option<String> {
        let (orders, wins, others) = (self.orders, self.winners_us.len(), self.others.len());
        let is_good = self.doubled == 0 && wins == orders as usize && others == 0;
        let first = self.others.first().map_or("nothing", String::as_str);
        (!is_good).then(|| {
            format!("{orders} orders had {wins} winners, and {others} drivers got other answers, such as: {first}")
        })
    }

    pub(super) fn updates_per_order(&self) -> f64 {
        round_to_digits(self.updates as f64 / f64::from(self.orders.max(1)), 3)
    }

    pub(super) fn to_json(&self) -> Value {
        let percentiles = |samples: &[i64]| SamplePercentiles::from_samples(samples.to_vec()).to_json_ms();
        let mut json = json!({
            "orders": self.orders,
            "wins": self.winners_us.len(),
            "double": self.doubled,
            "winner_ms": percentiles(&self.winners_us),
            "loser_ms": percentiles(&self.losers_us),
            "loser_head_to_answer_ms": percentiles(&self.refusals_us),
        });
        // Not reported for races during faults, because other statements are counted as well.
        if self.updates > 0 {
            json["sql_updates_per_order"] = json!(self.updates_per_order());
        }
        json
    }
}

/// HTTP client of the drivers. It runs on its own thread, so that reading answers does not compete with the server.
/// Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct DriverClients {
    pub(super) http: reqwest::Client,
    pub(super) thread: Handle,
}

/// Sends all accepts at the same moment, each over its own open connection.
pub(super) async fn run_race(
    clients: &DriverClients,
    (base, times): (&str, &RefusalTimes),
    order: &OrderId,
    offers: Vec<(SimulatedDriver, OfferId)>,
) -> RaceTally {
    // Discards times of an earlier race.
    drop(times.take());
    let start = Arc::new(Barrier::new(offers.len()));
    let url = format!("{base}/api/v1/orders/{order}/accept");
    let mut pressing = JoinSet::new();
    for (driver, offer) in offers {
        let (http, url, start) = (clients.http.clone(), url.clone(), start.clone());
        let press = async move {
            let body = json!({ "driver_id": driver.id, "offer_id": offer });
            let request = http.post(url).bearer_auth(&driver.key).json(&body);
            start.wait().await;
            let pressed = Instant::now();
            let answer = request.send().await;
            (pressed.elapsed(), answer)
        };
        pressing.spawn_on(press, &clients.thread);
    }
    let mut told = RaceTally { orders: 1, ..RaceTally::default() };
    // The bodies are read after all answers have arrived, so that reading does not slow the race.
    let mut answers = Vec::new();
    while let Some(Ok(answer)) = pressing.join_next().await {
        answers.push(answer);
    }
    for (took, answer) in answers {
        let took = duration_micros(took);
        match answer {
            Ok(answer) if answer.status().is_success() => told.winners_us.push(took),
            Ok(answer) => match error_and_detail(answer).await {
                (code, _) if BEATEN.contains(&code.as_str()) => told.losers_us.push(took),
                (code, detail) => told.others.push(format!("{code}: {detail}")),
            },
            Err(error) => told.others.push(error.without_url().to_string()),
        }
    }
    told.doubled = u32::from(told.winners_us.len() > 1);
    told.refusals_us = times.take();
    told
}
