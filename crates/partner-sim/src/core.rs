//! The simulated partner: its bookings, knobs and clock, behind one lock that is never held across an await.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use chrono::Utc;
use standardwebhooks::Webhook;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    api::booking_id,
    callbacks,
    counters::{Counters, Traffic},
    fate::{Event, Travel},
    faults::Bucket,
    knobs::{Knobs, OutageKind},
    ledger::Ledger,
    options::Options,
    timers::{Due, Timers},
};

pub(super) struct Core {
    pub(super) seed: u64,
    pub(super) api_key: String,
    speed: f64,
    keep_finished: Duration,
    started: Instant,
    state: Mutex<State>,
    timers: Timers,
    knobs_changed: Notify,
    pub(super) stop: CancellationToken,
    pub(super) client: reqwest::Client,
    pub(super) signer: Webhook,
    pub(super) forger: Webhook,
    /// Callbacks on their way, or waiting for their turn.
    pub(super) callbacks: TaskTracker,
    pub(super) callback_turns: Semaphore,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) knobs: Arc<Knobs>,
    pub(super) ledger: Ledger,
    pub(super) counters: Counters,
    pub(super) traffic: Traffic,
    bucket: Bucket,
}

/// Why a request is turned away at the door.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Refusal {
    Unavailable,
    Unauthorized,
    /// What Retry-After is to say.
    TooMany(Duration),
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("seed", &self.seed).field("speed", &self.speed).finish_non_exhaustive()
    }
}

impl Core {
    pub(super) fn new(options: &Options, timers: Timers, stop: CancellationToken) -> anyhow::Result<Self> {
        options.knobs.check().map_err(anyhow::Error::msg)?;
        let (signer, forger) = callbacks::signers(&options.callback_secret)?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(callbacks::TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(callbacks::CONCURRENCY)
            .build()
            .context("cannot make an HTTP client")?;
        let state = State {
            knobs: Arc::new(options.knobs.clone()),
            ledger: Ledger::default(),
            counters: Counters::default(),
            traffic: Traffic::default(),
            bucket: Bucket::default(),
        };
        Ok(Self {
            seed: options.seed,
            api_key: options.api_key.clone(),
            speed: options.speed,
            keep_finished: options.keep_finished,
            started: Instant::now(),
            state: Mutex::new(state),
            timers,
            knobs_changed: Notify::new(),
            stop,
            client,
            signer,
            forger,
            callbacks: TaskTracker::new(),
            callback_turns: Semaphore::new(callbacks::CONCURRENCY),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn knobs(&self) -> Arc<Knobs> {
        self.state().knobs.clone()
    }

    /// Changes knobs for everything that is decided from now on; bookings keep the fate they have.
    pub(super) fn change_knobs(&self, change: impl FnOnce(&Knobs) -> Result<Knobs, String>) -> Result<(), String> {
        {
            let mut state = self.state();
            let knobs = change(&state.knobs)?;
            state.knobs = Arc::new(knobs);
        }
        self.knobs_changed.notify_one();
        Ok(())
    }

    /// Since the start, in the order's time.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed().mul_f64(self.speed)
    }

    /// In real time.
    fn real(&self, orders_time: Duration) -> Duration {
        orders_time.div_f64(self.speed)
    }

    /// Later, in the order's time.
    pub(super) fn after(&self, delay: Duration, due: Due) {
        self.timers.after(self.real(delay), due);
    }

    /// Later, when it can be forgotten.
    pub(super) fn forget_later(&self, number: u64) {
        self.after(self.keep_finished, Due::Forget(number));
    }

    /// Counts a request in; dropping the guard counts it out.
    pub(super) fn begin(self: &Arc<Self>) -> Running {
        let state = &mut *self.state();
        state.traffic.begin(&mut state.counters, Instant::now());
        Running(self.clone())
    }

    /// The order of a real gateway: is anybody there, who are you, how often do you come?
    pub(super) fn admit(&self, key: Option<&str>) -> Result<(), Refusal> {
        let at = self.elapsed();
        let state = &mut *self.state();
        let knobs = &state.knobs;
        if knobs.outage(at).is_some() {
            state.counters.unavailable += 1;
            return Err(Refusal::Unavailable);
        }
        if key != Some(self.api_key.as_str()) || knobs.keys_fail(at) {
            state.counters.unauthorized += 1;
            return Err(Refusal::Unauthorized);
        }
        if let Some(rate) = knobs.rate_limit {
            let burst = knobs.rate_burst.unwrap_or(rate).max(1.0);
            if !state.bucket.admit(rate, burst, Instant::now()) {
                state.counters.rate_limited += 1;
                return Err(Refusal::TooMany(self.real(knobs.retry_after)));
            }
        }
        Ok(())
    }

    /// Retry-After as a header. Whole seconds, as HTTP wants; a fraction only where the speed asks for one.
    pub(super) fn retry_after(&self, wait: Duration) -> String {
        let secs = wait.as_secs_f64();
        if self.speed > 1.0 { format!("{secs:.3}") } else { format!("{:.0}", secs.ceil().max(1.0)) }
    }

    /// Lets the next step of a booking come when it should.
    pub(super) fn schedule_step(&self, number: u64) {
        let due = self.state().ledger.booking(number).and_then(|b| Some((b.booked_at, b.next_step()?)));
        if let Some((booked_at, after)) = due {
            let delay = self.real(after).saturating_sub(booked_at.elapsed());
            self.timers.after(delay, Due::Step(number));
        }
    }

    /// Does what is due.
    pub(super) fn handle(self: &Arc<Self>, due: Due) {
        match due {
            Due::Step(number) => {
                if self.do_step(number) {
                    self.schedule_step(number);
                }
            }
            Due::Forget(number) => {
                let keep = self.real(self.keep_finished);
                self.state().ledger.forget(number, Instant::now(), keep);
            }
            Due::Send(callbacks) => callbacks::send(self, callbacks),
        }
    }

    /// Does the next step of a booking, if there is one.
    pub(super) fn do_step(&self, number: u64) -> bool {
        let event = self.state().ledger.step(number, Instant::now());
        if let Some(event) = event {
            self.happened(number, event);
        }
        event.is_some()
    }

    /// What follows from an event that is in the ledger already.
    pub(super) fn happened(&self, number: u64, event: Event) {
        let (delay, callbacks) = {
            let state = &mut *self.state();
            let Some(booking) = state.ledger.booking(number) else { return };
            if booking.over_since.is_some() {
                self.forget_later(number);
            }
            if state.knobs.callback_url.is_none() {
                return;
            }
            let travel = Travel::draw(self.seed, &booking.reference, event, &state.knobs);
            if !travel.sent {
                state.counters.callbacks_withheld += 1;
            }
            let callbacks = callbacks::about(self.seed, &booking_id(number), booking, event, &travel, Utc::now());
            (travel.delay, callbacks)
        };
        if !callbacks.is_empty() {
            self.after(delay, Due::Send(callbacks));
        }
    }

    /// Are connections to be refused now?
    pub(super) fn refuses(&self) -> bool {
        self.knobs().outage(self.elapsed()) == Some(OutageKind::Refused)
    }

    /// Has connections refused while an outage says so.
    pub(super) async fn watch_outages(&self, refuse: &watch::Sender<bool>) {
        loop {
            // Asked for before the state is looked at, so that no edge falls between.
            let edge = self.knobs().next_outage_edge(self.elapsed());
            let wanted = self.refuses();
            refuse.send_if_modified(|refused| std::mem::replace(refused, wanted) != wanted);
            let edge = async {
                match edge {
                    Some(edge) => tokio::time::sleep(self.real(edge.saturating_sub(self.elapsed()))).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! { () = edge => {}, () = self.knobs_changed.notified() => {} }
        }
    }
}

/// A request that runs.
#[derive(Debug)]
pub(super) struct Running(Arc<Core>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.state().traffic.end();
    }
}
