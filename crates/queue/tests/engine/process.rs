//! A worker in a separate process, which tests stop, continue and kill: this test binary, started again.

use std::{
    io::{Read, Write},
    ops::ControlFlow,
    process::{Child, Command, Stdio},
    sync::Mutex,
};

use tokio_util::sync::CancellationToken;

use crate::support::{Letter, OTHER, QUEUE, Tick, due_now, secs};
use queue::{NewJob, Outcome, Registry, Runtime, SlotNeed, Store, run_with_slots};

const URL: &str = "ENGINE_TEST_REDIS_URL";

/// Number of a tick that kills its process.
pub(crate) const POISON: u64 = 666;

/// Text of a letter whose handler uses slots.
pub(crate) const SLOTTED: &str = "slotted";

/// Follow-up of the process' letters.
pub(crate) const FOLLOW_UP: &str = "tick:7";

pub(crate) struct Process(Mutex<Child>);

impl Process {
    pub(crate) fn start(redis_url: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::a_worker_process", "--nocapture"])
            .env(URL, redis_url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(Mutex::new(child))
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.0.lock().unwrap().id(), name);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.lock().unwrap().try_wait().unwrap().is_some()
    }

    /// Lets the process drain and end. Returns its summary.
    pub(crate) fn drain(self) -> String {
        let mut child = self.0.lock().unwrap();
        drop(child.stdin.take());
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        child.wait().unwrap();
        said
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.0.get_mut().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Sends a signal to a process that this test started.
pub(crate) fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

/// Not a test: the worker process itself, if it is started as one.
#[tokio::test]
async fn a_worker_process() {
    let Ok(url) = std::env::var(URL) else { return };
    let store = Store::connect(&url).await.unwrap();
    // Connecting may take longer than the timeout of a tick.
    let redis = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let slots = store.clone();
    let registry = Registry::new()
        .register::<Tick, _, _>(move |tick, _| {
            let mut redis = redis.clone();
            async move {
                if tick.0 == POISON {
                    std::process::abort();
                }
                redis::cmd("INCR").arg(format!("performed:{}", tick.0)).exec_async(&mut redis).await.unwrap();
                Outcome::done()
            }
        })
        .register::<Letter, _, _>(move |Letter(_, text), delivery| {
            let slots = slots.clone();
            async move {
                // Long enough to be stopped during it, and shorter than a lease.
                let read = async || tokio::time::sleep(secs(6)).await;
                if text == SLOTTED {
                    let need = SlotNeed::new("a", "letter", secs(600)).unwrap();
                    if let ControlFlow::Break(outcome) = run_with_slots(&slots, &delivery, &need, |_| read()).await {
                        return outcome;
                    }
                } else {
                    read().await;
                }
                Outcome::then_enqueue(vec![NewJob { queue: QUEUE, ..due_now(FOLLOW_UP) }])
            }
        });
    let stop = CancellationToken::new();
    let asked = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        asked.cancel();
    });
    let summary = Runtime::new(store, registry).queues([(QUEUE, 4), (OTHER, 4)]).run(stop).await.unwrap();
    writeln!(std::io::stdout(), "{summary:?}").unwrap();
}
