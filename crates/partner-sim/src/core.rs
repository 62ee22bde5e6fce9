//! The simulated partner: its bookings, knobs and clock, behind one lock that is never held across an await.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use chrono::Utc;
use parking_lot::{Mutex, MutexGuard};
use standardwebhooks::Webhook;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    callbacks,
    counters::{RequestTraffic, SimulationCounters},
    fate::{BookingEvent, CallbackTravel, booking_id},
    faults::TokenBucket,
    knobs::{OutageKind, PartnerKnobs},
    ledger::BookingLedger,
    options::PartnerSimOptions,
    timers::{DueAction, TimerSender},
};

pub(super) struct SimulationCore {
    pub(super) seed: u64,
    pub(super) api_key: String,
    speed: f64,
    keep_finished: Duration,
    started: Instant,
    state: Mutex<SimulationState>,
    timers: TimerSender,
    knobs_changed: Notify,
    pub(super) stop: CancellationToken,
    pub(super) client: reqwest::Client,
    pub(super) signer: Webhook,
    pub(super) forger: Webhook,
    /// Callbacks that are in flight or waiting to be sent.
    pub(super) callbacks: TaskTracker,
    pub(super) callback_turns: Semaphore,
}

#[derive(Debug)]
pub(super) struct SimulationState {
    pub(super) knobs: Arc<PartnerKnobs>,
    pub(super) ledger: BookingLedger,
    pub(super) counters: SimulationCounters,
    pub(super) traffic: RequestTraffic,
    bucket: TokenBucket,
}

/// Reason why a request is refused before it is handled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum GateRefusal {
    Unavailable,
    Unauthorized,
    /// Value of Retry-After.
    TooMany(Duration),
}

impl fmt::Debug for SimulationCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("seed", &self.seed).field("speed", &self.speed).finish_non_exhaustive()
    }
}

impl SimulationCore {
    pub(super) fn new(
        options: &PartnerSimOptions,
        timers: TimerSender,
        stop: CancellationToken,
    ) -> anyhow::Result<Self> {
        options.knobs.check_values().map_err(anyhow::Error::msg)?;
        let (signer, forger) = callbacks::callback_signers(&options.callback_secret)?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(callbacks::TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(callbacks::CONCURRENCY)
            .build()
            .context("cannot create an HTTP client")?;
        let state = SimulationState {
            knobs: Arc::new(options.knobs.clone()),
            ledger: BookingLedger::default(),
            counters: SimulationCounters::default(),
            traffic: RequestTraffic::default(),
            bucket: TokenBucket::default(),
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

    pub(super) fn lock_state(&self) -> MutexGuard<'_, SimulationState> {
        self.state.lock()
    }

    pub(super) fn current_knobs(&self) -> Arc<PartnerKnobs> {
        self.lock_state().knobs.clone()
    }

    /// Changes knobs for later decisions. Bookings keep their fate.
    pub(super) fn change_knobs(
        &self,
        change: impl FnOnce(&PartnerKnobs) -> Result<PartnerKnobs, String>,
    ) -> Result<(), String> {
        {
            let mut state = self.lock_state();
            let knobs = change(&state.knobs)?;
            state.knobs = Arc::new(knobs);
        }
        self.knobs_changed.notify_one();
        Ok(())
    }

    /// Returns the time since the start, in simulated time.
    pub(super) fn elapsed_order_time(&self) -> Duration {
        self.started.elapsed().mul_f64(self.speed)
    }

    /// Converts simulated time to real time.
    fn real_duration(&self, orders_time: Duration) -> Duration {
        orders_time.div_f64(self.speed)
    }

    /// Schedules an action after a delay in simulated time.
    pub(super) fn schedule_after(&self, delay: Duration, due: DueAction) {
        self.timers.send_after(self.real_duration(delay), due);
    }

    /// Schedules the removal of a booking.
    pub(super) fn forget_later(&self, number: u64) {
        self.schedule_after(self.keep_finished, DueAction::Forget(number));
    }

    /// Counts a running request until the guard is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> RunningRequest {
        let state = &mut *self.lock_state();
        state.traffic.begin_request(&mut state.counters, Instant::now());
        RunningRequest(self.clone())
    }

    /// Checks in the order of a real gateway: outage, key, rate limit.
    pub(super) fn admit_request(&self, key: Option<&str>) -> Result<(), GateRefusal> {
        let at = self.elapsed_order_time();
        let state = &mut *self.lock_state();
        let knobs = &state.knobs;
        if knobs.outage_at(at).is_some() {
            state.counters.unavailable += 1;
            return Err(GateRefusal::Unavailable);
        }
        if key != Some(self.api_key.as_str()) || knobs.keys_fail(at) {
            state.counters.unauthorized += 1;
            return Err(GateRefusal::Unauthorized);
        }
        if let Some(rate) = knobs.rate_limit {
            let burst = knobs.rate_burst.unwrap_or(rate).max(1.0);
            if !state.bucket.try_take(rate, burst, Instant::now()) {
                state.counters.rate_limited += 1;
                return Err(GateRefusal::TooMany(self.real_duration(knobs.retry_after)));
            }
        }
        Ok(())
    }

    /// Formats Retry-After in whole seconds, as HTTP requires. Uses fractions only if the speed is above 1.
    pub(super) fn retry_after(&self, wait: Duration) -> String {
        let secs = wait.as_secs_f64();
        if self.speed > 1.0 { format!("{secs:.3}") } else { format!("{:.0}", secs.ceil().max(1.0)) }
    }

    /// Schedules the next step of a booking.
    pub(super) fn schedule_step(&self, number: u64) {
        let due = self.lock_state().ledger.find_booking(number).and_then(|b| Some((b.booked_at, b.next_step()?)));
        if let Some((booked_at, after)) = due {
            let delay = self.real_duration(after).saturating_sub(booked_at.elapsed());
            self.timers.send_after(delay, DueAction::Step(number));
        }
    }

    /// Performs the next step of a booking, and schedules the step after it.
    pub(super) fn continue_booking(&self, number: u64) {
        if self.do_step(number) {
            self.schedule_step(number);
        }
    }

    /// Removes a booking that ended long enough ago.
    pub(super) fn forget_booking(&self, number: u64) {
        let keep = self.real_duration(self.keep_finished);
        self.lock_state().ledger.forget_finished(number, Instant::now(), keep);
    }

    /// Performs the next step of a booking. Returns whether there was one.
    pub(super) fn do_step(&self, number: u64) -> bool {
        let event = self.lock_state().ledger.take_step(number, Instant::now());
        if let Some(event) = event {
            self.follow_up_event(number, event);
        }
        event.is_some()
    }

    /// Schedules the callbacks of an event that the ledger already contains, and the removal of a finished booking.
    pub(super) fn follow_up_event(&self, number: u64, event: BookingEvent) {
        let (delay, callbacks) = {
            let state = &mut *self.lock_state();
            let Some(booking) = state.ledger.find_booking(number) else { return };
            if booking.over_since.is_some() {
                self.forget_later(number);
            }
            if state.knobs.callback_url.is_none() {
                return;
            }
            let travel = CallbackTravel::draw_travel(self.seed, &booking.reference, event, &state.knobs);
            if !travel.sent {
                state.counters.callbacks_withheld += 1;
            }
            let callbacks =
                callbacks::callbacks_for_event(self.seed, &booking_id(number), booking, event, &travel, Utc::now());
            (travel.delay, callbacks)
        };
        if !callbacks.is_empty() {
            self.schedule_after(delay, DueAction::Send(callbacks));
        }
    }

    /// Returns whether connections are refused now.
    pub(super) fn refuses_connections(&self) -> bool {
        self.current_knobs().outage_at(self.elapsed_order_time()) == Some(OutageKind::Refused)
    }

    /// Refuses connections during outages.
    pub(super) async fn watch_outages(&self, refuse: &watch::Sender<bool>) {
        loop {
            // The next edge is read before the state, so that no edge between the two is missed.
            let edge = self.current_knobs().next_outage_edge(self.elapsed_order_time());
            let wanted = self.refuses_connections();
            refuse.send_if_modified(|refused| std::mem::replace(refused, wanted) != wanted);
            let edge = async {
                match edge {
                    Some(edge) => {
                        tokio::time::sleep(self.real_duration(edge.saturating_sub(self.elapsed_order_time()))).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! { () = edge => {}, () = self.knobs_changed.notified() => {} }
        }
    }
}

/// A running request.
#[derive(Debug)]
pub(super) struct RunningRequest(Arc<SimulationCore>);

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.lock_state().traffic.end_request();
    }
}
