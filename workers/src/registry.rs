//! List of all jobs and their handlers.

use std::time::Duration;

use tracing::Instrument;

use crate::{
    alarm, callback, cancel_booking, compensate, cycle, details, dispatch, escalate, lifetime, notify, otp, poll,
    refund, remind, run_plan, settle, tick, timeout, trip, warn, wave,
};
use app::App;
use foundation::{
    core::Core,
    crash,
    db::{self, readiness},
    traces,
};
use queue::{Delivery, Job, Outcome, Registry};

/// Margin before the engine's timeout at which a run is aborted here. It leaves enough time to check Postgres.
const HEAD_START: Duration = Duration::from_secs(5);

pub fn build_registry(app: &App) -> Registry {
    let core = &app.core;
    let registry = Registry::new();
    let registry = register_handler(registry, core, &app.partners, dispatch::perform_dispatch);
    let registry = register_handler(registry, core, &app.partners, timeout::perform_timeout);
    let registry = register_handler(registry, core, &app.orders, wave::perform_wave);
    let registry = register_handler(registry, core, &app.partners, poll::perform_poll);
    let registry = register_handler(registry, core, &app.partners, callback::perform_callback);
    let registry = register_handler(registry, core, &app.orders, lifetime::perform_lifetime);
    let registry = register_handler(registry, core, &app.orders, trip::perform_trip);
    let registry = register_handler(registry, core, &app.orders, warn::perform_warning);
    let registry = register_handler(registry, core, &app.orders, compensate::perform_compensate);
    let registry = register_handler(registry, core, &app.partners, cancel_booking::perform_cancel_booking);
    let registry = register_handler(registry, core, &app.partners, details::perform_details);
    let registry = register_handler(registry, core, &app.orders, refund::perform_refund);
    let registry = register_handler(registry, core, &app.orders, notify::perform_notify);
    let registry = register_handler(registry, core, &app.orders, escalate::perform_escalate);
    let registry = register_handler(registry, core, &app.orders, remind::perform_remind);
    let registry = register_handler(registry, core, &app.orders, alarm::perform_alarm);
    let registry = register_handler(registry, core, &app.maintenance, tick::perform_tick);
    let registry = register_handler(registry, core, &app.desk, run_plan::perform_plan);
    let registry = register_with_delivery(registry, core, &app.bindings, cycle::perform_cycle);
    let registry = register_with_delivery(registry, core, &app.bindings, otp::perform_otp);
    register_with_delivery(registry, core, &app.bindings, settle::perform_settle)
}

fn register_handler<C, J, F, Fut>(registry: Registry, core: &Core, capability: &C, perform: F) -> Registry
where
    C: Clone + Send + Sync + 'static,
    J: Job,
    F: Fn(C, J) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    register_with_delivery(registry, core, capability, move |capability, job, _| perform(capability, job))
}

/// Registers a handler that also receives its delivery, which contains the slots.
fn register_with_delivery<C, J, F, Fut>(registry: Registry, core: &Core, capability: &C, perform: F) -> Registry
where
    C: Clone + Send + Sync + 'static,
    J: Job,
    F: Fn(C, J, Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    let (core, capability) = (core.clone(), capability.clone());
    registry.register::<J, _, _>(move |job: J, delivery: Delivery| {
        // Adds the job to each log line of this run.
        let span = traces::job_span(&delivery.id, delivery.lateness_ms);
        // Boxed, because the future is many kilobytes in size and each wrapper would contain and move a copy.
        let run = Box::pin(perform(capability.clone(), job, delivery));
        let run = run_in_time(core.clone(), J::TIMEOUT.saturating_sub(HEAD_START), run);
        async {
            let outcome = run.await;
            crash::reach_point(J::KIND, "returns");
            outcome
        }
        .instrument(span)
    })
}

/// Aborts a run that takes too long. The run counts as a failed try only if Postgres accepts writes; otherwise the job
/// is snoozed. The check queries Postgres through the pool that the run used. That pool's connections may be dead while
/// those of the gate still work.
async fn run_in_time(core: Core, limit: Duration, run: impl Future<Output = Outcome>) -> Outcome {
    match tokio::time::timeout(limit, run).await {
        Ok(outcome) => outcome,
        Err(_) if readiness::ask_postgres(&core.db).await == readiness::PostgresState::Writable => {
            Outcome::Retry(format!("timed out after {limit:?}"))
        }
        Err(_) => db::database_pause(&*core.rng),
    }
}
