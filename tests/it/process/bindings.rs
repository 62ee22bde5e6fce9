//! Acceptance criteria of bindings, tested on whole processes that are killed, frozen, disconnected from their servers
//! or abandoned by their clients. The provider simulator and the tables decide whether a test passes. `crashes`:
//! processes that die between two steps.

mod crashes;

use std::time::Duration;

use model::binding::{BindingCommand, StopReason};
use provider_sim::{ProviderKnobs, ProviderSim, ProviderSimOptions};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::redis::start_replica;
use crate::support::{Child, Fleet, OTP_KEY, binding_id, by, eventually, millis, redis_command, secs};
use accounts::{api_keys::AccountRole, key_admin};
use app::App;
use bindings::{
    commands::{self, NewBinding},
    servers,
    store::servers::ServerSettings,
};
use foundation::outbound;
use maintenance::audit;

const SERVERS: usize = 3;
/// Number of bindings that may call at the same time: two per server.
const BINDINGS: usize = 6;
const ENDED: &str = "SELECT count(*) FROM transactions WHERE status IN ('SUKSES', 'GAGAL')";
const MOVING: &str = "SELECT count(*) FROM bindings WHERE state <> 'STOPPED' OR phase <> 'IDLE'";
const WITHOUT_MONEY: &str = "SELECT count(*) FROM bindings
    WHERE state = 'STOPPED' AND phase = 'IDLE' AND reason = 'insufficient_balance_before_start'";
const REBUILDS: &str = "SELECT count(*) FROM reconcile_log WHERE rebuild";

/// Servers, a provider, `serve` processes, and an operator who commands bindings through them.
struct BindingFleet {
    fleet: Fleet,
    sim: ProviderSim,
    apis: Vec<(Child, String)>,
    client: reqwest::Client,
    key: String,
}

impl BindingFleet {
    /// Starts the given number of `serve` processes and a provider with the given knobs.
    async fn start(replicas: usize, turn: impl FnOnce(&mut ProviderKnobs)) -> Self {
        let options = ProviderSimOptions::default();
        let sim = ProviderSim::start(&options).await.unwrap();
        sim.change_knobs(turn).unwrap();
        let provider = format!(
            "[providers.sim]\napi_key = \"{}\"\nhosts = [\"127.0.0.1\"]\nallow_private = true\n[bindings]\notp_key = \"{OTP_KEY}\"\n",
            options.api_key
        );
        let fleet = Fleet::with("30m", &provider).await;
        for server in 0..SERVERS {
            let id = format!("S{server}");
            let settings = ServerSettings {
                provider: Some("sim".into()),
                base_url: Some(sim.server_url(&id)),
                max_concurrent: Some(2),
                ..ServerSettings::default()
            };
            servers::create_server(&fleet.app.bindings, &id.parse().unwrap(), &settings, &by("operator:ops"))
                .await
                .unwrap();
        }
        let (_, key) =
            key_admin::create_permanent_key(&fleet.app.core.db, "ops", AccountRole::Operator, None).await.unwrap();
        let mut apis = Vec::new();
        for replica in 0..replicas {
            apis.push(fleet.api_named(&format!("api-{replica}"), &[]).await);
        }
        Self { fleet, sim, apis, client: outbound::build_client(secs(30)).unwrap(), key }
    }

    async fn limit_servers_to_one_call(&self) {
        let one_call = ServerSettings { max_concurrent: Some(1), ..ServerSettings::default() };
        for server in 0..SERVERS {
            let id = format!("S{server}").parse().unwrap();
            servers::change_server(&self.fleet.app.bindings, &id, &one_call, &by("operator:ops")).await.unwrap();
        }
    }

    async fn create_bindings(&self, call_timeout_ms: u32) {
        for n in 0..BINDINGS {
            let new = json!({ "id": format!("B{n}"), "server_id": format!("S{}", n % SERVERS), "account_id": format!("A{n}"),
                              "config": { "interval_ms": [20, 60], "call_timeout_ms": call_timeout_ms } });
            let new: NewBinding = serde_json::from_value(new).unwrap();
            commands::create_binding(&self.fleet.app.bindings, &new, &by("operator:ops")).await.unwrap();
        }
    }

    async fn run_bindings(&self, call_timeout_ms: u32) {
        self.create_bindings(call_timeout_ms).await;
        for n in 0..BINDINGS {
            self.command(n, BindingCommand::Start).await;
        }
    }

    /// Repeats a command until it is accepted. A server may still be recovering.
    async fn command(&self, n: usize, command: BindingCommand) {
        let (id, actor) = (binding_id(&format!("B{n}")), by("operator:ops"));
        eventually("the command is taken", || async {
            commands::command_binding(&self.fleet.app.bindings, &id, &command, &actor).await.is_ok()
        })
        .await;
    }

    fn verb_path(n: usize, verb: &str) -> String {
        format!("/api/v1/bindings/B{n}/{verb}")
    }

    /// Commands a binding through one of the replicas and returns the HTTP status.
    async fn ask(&self, replica: usize, n: usize, verb: &str) -> u16 {
        let url = format!("{}{}", self.apis[replica].1, Self::verb_path(n, verb));
        let request = self.client.post(url).bearer_auth(&self.key).header("content-type", "application/json");
        request.send().await.unwrap().status().as_u16()
    }

    /// Commands a binding and disconnects, at once or while the command runs.
    async fn ask_and_hang_up(&self, replica: usize, n: usize, verb: &str, pause: Duration) {
        let mut client = TcpStream::connect(self.apis[replica].1.trim_start_matches("http://")).await.unwrap();
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: dispatchq\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: 0\r\n\r\n",
            Self::verb_path(n, verb),
            self.key
        );
        client.write_all(request.as_bytes()).await.unwrap();
        tokio::time::sleep(pause).await;
    }

    /// Returns a binding as a replica shows it.
    async fn shown(&self, replica: usize, n: usize) -> Value {
        let url = format!("{}/api/v1/bindings/B{n}", self.apis[replica].1);
        let answer = self.client.get(url).bearer_auth(&self.key).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.json().await.unwrap()
    }

    /// Returns, for each binding, a query and the count at which `more` additional transactions are final.
    async fn goals(&self, more: i64) -> Vec<(i64, String)> {
        let mut goals = Vec::new();
        for n in 0..BINDINGS {
            let query = format!("{ENDED} AND binding_id = 'B{n}'");
            // The count is below 0 until Postgres answers.
            self.fleet.reach(0, &query).await;
            goals.push((self.fleet.count(&query).await + more, query));
        }
        goals
    }

    /// Waits until each binding has `more` additional final transactions.
    async fn until_each_ended(&self, more: i64) {
        for (goal, query) in self.goals(more).await {
            self.fleet.reach(goal, &query).await;
        }
    }

    async fn until_calls_open(&self, at_least: u64) {
        eventually("calls are open", || async { self.sim.read_report().open >= at_least }).await;
    }

    /// Flushes Redis and waits until it is rebuilt.
    async fn flush_redis(&self) {
        let before = self.fleet.count(REBUILDS).await;
        redis_command::<()>(&self.fleet.redis.url(), &["FLUSHALL"]).await;
        self.fleet.reach(before + 1, REBUILDS).await;
    }

    /// Stops all bindings and checks the provider and the tables.
    async fn assert_all_well(&self) {
        // The stop is repeated, because a start whose client disconnected may still arrive.
        eventually("all bindings rest", || async {
            for n in 0..BINDINGS {
                self.command(n, BindingCommand::Stop { reason: StopReason::ManualStop }).await;
            }
            self.fleet.count(MOVING).await == 0
        })
        .await;
        let report = self.sim.read_report();
        let judge = &report.judge;
        let faults = [judge.overlaps, judge.over_admissions, judge.keys_differing, judge.gaps, judge.cycles_backwards];
        assert_eq!((faults, report.open), ([0; 5], 0), "{judge:?}");
        assert_eq!(audit::check_history(&self.fleet.app.maintenance).await.unwrap(), []);
        // Each cycle has a transaction, each transaction is final, and the provider and the tables agree.
        let ended = self.fleet.count(ENDED).await;
        assert_eq!(self.fleet.count("SELECT sum(cycle)::bigint FROM bindings").await, ended);
        assert_eq!(self.fleet.count("SELECT count(*) FROM transactions").await, ended);
        let succeeded = self.fleet.count("SELECT count(*) FROM transactions WHERE status = 'SUKSES'").await;
        assert_eq!(report.transactions.succeeded.cast_signed(), succeeded, "{:?}", report.transactions);
        assert_eq!(self.fleet.app.core.store.queue_stats(&[jobs::queues::BINDING]).await.unwrap()[0].dead, 0);
    }
}

fn answers_within(knobs: &mut ProviderKnobs, latency: &str) {
    knobs.latency = latency.parse().unwrap();
}

/// Criteria 1 and 3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_workers_leave_no_binding_stopped_or_doubled() {
    let b = BindingFleet::start(0, |knobs| answers_within(knobs, "10ms-60ms")).await;
    let slow = |latency: &str| b.sim.change_knobs(|knobs| answers_within(knobs, latency)).unwrap();
    let mut first = b.fleet.running_worker("w1").await;
    b.run_bindings(3000).await;
    b.until_each_ended(3).await;
    // The worker is killed with open calls. Their answers are lost, so the calls are repeated under the same keys.
    slow("1500ms");
    b.until_calls_open(2).await;
    assert!(!first.kill().success());
    slow("10ms-60ms");
    let mut second = b.fleet.running_worker("w2").await;
    b.until_each_ended(3).await;

    // The worker is frozen with open calls. The other workers continue after these calls and the leases of their jobs
    // have ended.
    slow("1500ms");
    b.until_calls_open(2).await;
    second.signal("STOP");
    slow("10ms-60ms");
    let mut third = b.fleet.running_worker("w3").await;
    b.until_each_ended(3).await;
    second.signal("CONT");
    b.until_each_ended(3).await;

    // A worker that is added takes a share of the bindings, and all of them after the others have exited.
    let _fourth = b.fleet.running_worker("w4").await;
    second.terminate();
    assert_eq!(second.ended().await.code(), Some(0));
    assert!(!third.kill().success());
    b.until_each_ended(3).await;
    let by_fourth = "SELECT count(*) FROM transaction_snapshots WHERE part = 'claim' AND owner LIKE 'w4:%'";
    b.fleet.reach(1, by_fourth).await;
    b.assert_all_well().await;
}

/// Criteria 1, 3 and 5: the rows decide, even when servers fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_outages_leave_no_binding_stopped() {
    let mut b = BindingFleet::start(0, |knobs| answers_within(knobs, "10ms-60ms")).await;
    let workers = [b.fleet.running_worker("w1").await, b.fleet.running_worker("w2").await];
    b.run_bindings(3000).await;
    b.until_each_ended(3).await;
    b.flush_redis().await;
    b.until_each_ended(3).await;
    let rebuilds = b.fleet.count(REBUILDS).await;
    b.fleet.redis.kill().await;
    b.fleet.redis.restart().await.unwrap();
    b.fleet.reach(rebuilds + 1, REBUILDS).await;
    b.until_each_ended(3).await;
    b.fleet.postgres.stop().await.unwrap();
    b.fleet.postgres.restart().await.unwrap();
    b.until_each_ended(3).await;

    b.fleet.set_read_only(true).await;
    for worker in &workers {
        eventually("the gate closes", || async { worker.log().contains("Postgres is read-only") }).await;
    }
    // No call starts, because none can be claimed.
    eventually("all calls have ended", || async { b.sim.read_report().open == 0 }).await;
    b.fleet.set_read_only(false).await;
    b.until_each_ended(3).await;
    b.assert_all_well().await;
}

/// The calls of the killed worker end with its connections, long before they time out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_worker_frees_slots_on_its_machine() {
    let b = BindingFleet::start(0, |knobs| {
        answers_within(knobs, "60s");
        knobs.max_open_per_server = 1;
    })
    .await;
    b.limit_servers_to_one_call().await;
    let mut first = b.fleet.running_worker("w1").await;
    b.run_bindings(20_000).await;
    b.until_calls_open(3).await;
    let _second = b.fleet.running_worker("w2").await;
    b.sim.change_knobs(|knobs| answers_within(knobs, "10ms-60ms")).unwrap();
    assert!(!first.kill().success());
    b.fleet.reach(3, ENDED).await;
    let lost = "SELECT count(*) FROM transaction_snapshots
        WHERE part = 'claim' AND owner LIKE 'w1:%' AND call_until > dispatchq_now()";
    assert_eq!(b.fleet.count(lost).await, 3, "the other bindings go on before the time of these calls is over");
    b.assert_all_well().await;
    assert_eq!(b.sim.read_report().judge.max_open_per_server, 1);
}

/// Half of the bindings wait in line. Then a worker is killed with open calls, Redis is flushed, and the Redis replica
/// takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_loss_never_exceeds_the_server_limit() {
    let mut b = BindingFleet::start(0, |knobs| {
        answers_within(knobs, "10ms-60ms");
        knobs.max_open_per_server = 1;
    })
    .await;
    let _replica = start_replica(&b.fleet.redis).await;
    let sentinels = ::servers::SentinelGroup::start(&b.fleet.redis).await.unwrap();
    let url = sentinels.url();
    let mut config = (*b.fleet.app.config).clone();
    config.redis.url.clone_from(&url);
    b.fleet.app = App::connect(config).await.unwrap();
    b.limit_servers_to_one_call().await;
    let settings = [("DISPATCHQ_REDIS__URL", url.as_str())];
    let mut first = b.fleet.worker_with("w1", &settings);
    b.run_bindings(3000).await;
    b.until_each_ended(3).await;

    let slow = |latency: &str| b.sim.change_knobs(|knobs| answers_within(knobs, latency)).unwrap();
    slow("1500ms");
    b.until_calls_open(2).await;
    assert!(!first.kill().success());
    let _second = b.fleet.worker_with("w2", &settings);
    let _third = b.fleet.worker_with("w3", &settings);
    b.until_each_ended(1).await;
    b.until_calls_open(2).await;
    b.flush_redis().await;
    b.until_each_ended(1).await;
    b.until_calls_open(2).await;
    let rebuilds = b.fleet.count(REBUILDS).await;
    b.fleet.redis.kill().await;
    b.fleet.reach(rebuilds + 1, REBUILDS).await;
    b.until_each_ended(1).await;
    b.sim.change_knobs(|knobs| answers_within(knobs, "10ms-60ms")).unwrap();
    b.until_each_ended(3).await;
    b.assert_all_well().await;
    assert_eq!(b.sim.read_report().judge.max_open_per_server, 1);
}

/// Criterion 2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_cuts_no_call_and_no_cycle_follows() {
    let mut b = BindingFleet::start(2, |knobs| answers_within(knobs, "3s")).await;
    let _workers = [b.fleet.running_worker("w1").await, b.fleet.running_worker("w2").await];
    b.run_bindings(60_000).await;
    b.until_calls_open(BINDINGS as u64).await;
    for n in 0..BINDINGS {
        b.ask_and_hang_up(n % 2, n, "stop", millis(n as u64)).await;
        eventually("the stop is taken", || async { b.ask(1 - n % 2, n, "stop").await == 200 }).await;
    }
    // Killing the process that took the command changes nothing.
    for (api, _) in &mut b.apis {
        api.kill();
    }
    eventually("all bindings rest", || async { b.fleet.count(MOVING).await == 0 }).await;
    b.assert_all_well().await;
    let report = b.sim.read_report();
    assert_eq!((report.judge.duplicates, report.faults.cut_by_call_until), (0, 0));
    let answered = "SELECT count(*) FROM transaction_snapshots WHERE part = 'end' AND result = 'success'";
    let begun = b.fleet.count("SELECT sum(cycle)::bigint FROM bindings").await;
    assert_eq!((b.fleet.count(answered).await, report.judge.calls.cast_signed()), (begun, begun));
    let manually = "SELECT count(*) FROM bindings WHERE reason = 'manual_stop'";
    assert_eq!(b.fleet.count(manually).await, BINDINGS as i64);
}

/// Criterion 4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_account_stops_its_binding_until_restarted() {
    let b = BindingFleet::start(0, |knobs| {
        answers_within(knobs, "100ms-200ms");
        knobs.balance = Some(3);
    })
    .await;
    let all = BINDINGS as i64;
    let mut first = b.fleet.running_worker("w1").await;
    b.run_bindings(3000).await;
    b.fleet.reach(all, ENDED).await;
    first.kill();
    let _second = b.fleet.running_worker("w2").await;
    b.fleet.reach(all, WITHOUT_MONEY).await;
    let refused = "SELECT count(*) FROM transactions
                   WHERE status = 'GAGAL' AND reason = 'insufficient_balance_before_start'";
    assert_eq!((b.fleet.count(ENDED).await, b.fleet.count(refused).await), (4 * all, all));

    // Neither new money nor a rebuilt Redis starts a binding.
    b.sim.set_balance("A0", 2);
    b.flush_redis().await;
    assert_eq!((b.fleet.count(WITHOUT_MONEY).await, b.fleet.count(ENDED).await), (all, 4 * all));
    b.command(0, BindingCommand::Start).await;
    b.command(1, BindingCommand::Start).await;
    b.fleet.reach(4 * all + 4, ENDED).await;
    b.fleet.reach(all, WITHOUT_MONEY).await;
    assert_eq!(b.fleet.count(refused).await, all + 2);
    b.assert_all_well().await;
    assert_eq!(b.fleet.count(WITHOUT_MONEY).await, all);
}

/// Criterion 5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_are_commanded_at_once_agree() {
    const VERBS: [&str; 4] = ["start", "pause", "resume", "stop"];
    let b = BindingFleet::start(2, |knobs| answers_within(knobs, "10ms-60ms")).await;
    let mut first = b.fleet.running_worker("w1").await;
    b.run_bindings(3000).await;
    b.until_each_ended(1).await;
    let mut second = None;
    for round in 0..12 {
        if round == 6 {
            second = Some(b.fleet.running_worker("w2").await);
        }
        for n in 0..BINDINGS {
            let (one, other) = (VERBS[(round + n) % 4], VERBS[(3 * round + n + 1) % 4]);
            let pause = millis((5 * round + n) as u64 % 9);
            let (told, also_told, (), ()) = tokio::join!(
                b.ask(0, n, one),
                b.ask(1, n, other),
                b.ask_and_hang_up(0, n, other, pause),
                b.ask_and_hang_up(1, n, one, pause)
            );
            // 409: the binding's state refuses the command. 503: other commands won every retry.
            for status in [told, also_told] {
                assert!([200, 409, 503].contains(&status), "{one} beside {other} was answered {status}");
            }
        }
    }
    // A stop whose client disconnected may still arrive.
    for (goal, query) in b.goals(3).await {
        eventually("all bindings go on", || async {
            for n in 0..BINDINGS {
                b.ask(n % 2, n, "resume").await;
                b.ask(1 - n % 2, n, "start").await;
            }
            b.fleet.count(&query).await >= goal
        })
        .await;
    }
    first.kill();
    b.until_each_ended(3).await;
    b.assert_all_well().await;
    for n in 0..BINDINGS {
        let rows = [b.shown(0, n).await, b.shown(1, n).await];
        assert_eq!(rows[0], rows[1]);
        assert_eq!((&rows[0]["state"], &rows[0]["phase"]), (&json!("STOPPED"), &json!("IDLE")));
        // The copy for observers is updated later.
        let url = b.fleet.redis.url();
        eventually("the copy says so, too", || async {
            let copy: Option<String> = redis_command(&url, &["HGET", &format!("wrk:state:B{n}"), "state"]).await;
            copy.as_deref() == Some("STOPPED")
        })
        .await;
    }
    drop(second);
}
