//! Processes that die between two steps, as in a power failure: before and after each write and each call. No call is
//! made twice, no answer is lost permanently, and every binding continues.

use std::{mem, time::Instant};

use model::binding::TrxId;
use serde_json::json;

use super::{BINDINGS, BindingFleet, answers_within};
use crate::support::{Child, by, eventually, millis, secs};
use bindings::{commands, otp_seal::PlainOtp};

/// OTP that the provider expects.
const OTP: &str = "123456";
/// Crash points of workers, each with the number of passes before the crash. Each worker completes cycles first, and
/// the next one takes over its work. The workers of a line run concurrently.
const POINTS: [&[&str]; 4] = [
    &["call.claims:9", "call.claimed:12", "provider.sends:15"],
    &["provider.answered:9", "call.answered:12", "call.recorded:15"],
    &["binding.commits:18", "binding.committed:21", "cycle.returns:9"],
    &["otp.returns:2", "binding.commits:31", "binding.committed:38"],
];

impl BindingFleet {
    /// Sends the OTP of each waiting transaction. A wait that has ended in between is ignored.
    async fn hand_otps_in(&self) {
        let waiting = "SELECT trx_id FROM bindings WHERE phase = 'WAITING_OTP' AND otp_value IS NULL";
        let waiting: Vec<String> =
            sqlx::query_scalar(waiting).fetch_all(&self.fleet.app.core.db).await.unwrap_or_default();
        for trx_id in waiting {
            let trx_id: TrxId = trx_id.parse().unwrap();
            let (binding, _) = trx_id.parts().unwrap();
            let otp = PlainOtp::parse(OTP.to_owned()).unwrap();
            let _ = commands::submit_otp(&self.fleet.app.bindings, &binding, &trx_id, &otp, &by("support:desk")).await;
        }
    }

    fn doomed_worker(&self, point: &str) -> Child {
        self.fleet.worker_with(point, &[("CRASH_AT", point)])
    }

    /// Waits until a worker has died at each of these points.
    async fn workers_die_at(&self, points: &[&'static str]) {
        let mut doomed: Vec<_> = points.iter().map(|point| (*point, self.doomed_worker(point))).collect();
        let begun = Instant::now();
        while !doomed.is_empty() {
            let left: Vec<_> = doomed.iter().map(|(point, _)| *point).collect();
            assert!(begun.elapsed() < secs(120), "no worker came by {left:?}");
            self.hand_otps_in().await;
            tokio::time::sleep(millis(100)).await;
            for (point, mut child) in mem::take(&mut doomed) {
                if child.runs() {
                    doomed.push((point, child));
                } else if child.log().contains("did not answer 'ping'") {
                    // On a slow machine the worker exits before the crash point. A supervisor would restart it.
                    doomed.push((point, self.doomed_worker(point)));
                } else {
                    assert!(child.log().contains(&format!("CRASH_AT={point}")), "{point}: {}", child.log());
                }
            }
        }
    }

    /// Sends a request to a process that dies after it has written the change and before it notifies Redis.
    async fn ask_one_that_dies(&self, n: usize, verb: &str, body: serde_json::Value) {
        let (mut doomed, base) = self.fleet.api_named(verb, &[("CRASH_AT", "request.enqueues")]).await;
        let url = format!("{base}{}", Self::verb_path(n, verb));
        let answer = self.client.post(url).bearer_auth(&self.key).json(&body).send().await;
        assert!(answer.is_err(), "{verb}: {answer:?}");
        assert!(!doomed.ended().await.success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_crashes_end_each_cycle_once() {
    let b = BindingFleet::start(0, |knobs| {
        answers_within(knobs, "5ms-20ms");
        knobs.processing_rate = "0.3".parse().unwrap();
        knobs.processing_duration = "100ms-300ms".parse().unwrap();
        knobs.otp_rate = "0.3".parse().unwrap();
    })
    .await;
    b.run_bindings(1000).await;
    for points in POINTS {
        b.workers_die_at(points).await;
    }
    let _survivor = b.fleet.running_worker("survivor").await;
    b.sim.change_knobs(|knobs| knobs.otp_rate = "0".parse().unwrap()).unwrap();
    for (goal, query) in b.goals(3).await {
        eventually("each binding goes on", || async {
            b.hand_otps_in().await;
            b.fleet.count(&query).await >= goal
        })
        .await;
    }
    b.assert_all_well().await;
    assert!(b.sim.read_report().transactions.otps_right > 0);
    assert_eq!(b.fleet.count("SELECT count(*) FROM bindings WHERE otp_value IS NOT NULL").await, 0);
    assert!(b.fleet.count("SELECT count(*) FROM transaction_snapshots WHERE result = 'lost'").await > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_crash_before_enqueue_loses_no_command() {
    let b = BindingFleet::start(0, |knobs| {
        answers_within(knobs, "5ms-20ms");
        knobs.otp_rate = "1".parse().unwrap();
    })
    .await;
    b.create_bindings(1000).await;
    let _worker = b.fleet.running_worker("w1").await;
    b.ask_one_that_dies(0, "start", json!({})).await;
    b.fleet.reach(1, "SELECT count(*) FROM bindings WHERE id = 'B0' AND phase = 'WAITING_OTP'").await;
    b.ask_one_that_dies(0, "otp", json!({ "trx_id": "B0.1", "otp": OTP })).await;
    b.fleet.reach(1, "SELECT count(*) FROM transactions WHERE trx_id = 'B0.1' AND status = 'SUKSES'").await;
    b.assert_all_well().await;
    assert_eq!(b.fleet.count("SELECT count(*) FROM bindings WHERE cycle = 0").await, BINDINGS as i64 - 1);
}
