//! A change of an order, and its effects in Redis.
//!
//! The row is committed when a caller gets the effects. A lost effect is repaired later: the reconciler enqueues missing
//! timers, and everything else in Redis is a hint.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture};
use jobs::OrderId;
use model::{
    decide::{Change, superseded::superseded_timers, timers},
    fleet::freed,
    ids::DriverId,
    order::Snapshot,
};

use crate::{
    accept_gate::{self, GateUpdate},
    capability::Orders,
    freed_drivers,
    timer_sending::send_jobs,
};
use areas::admission::waiting;
use foundation::{
    core::Core,
    dead_letter_rows::{self, Resolution},
    error::ServiceError,
};
use queue::{Command, JobAddress, NewJob, Outcome};

/// Remaining work of a committed change: the updates in Redis.
pub type RestOfChange = BoxFuture<'static, ()>;

/// Result of a decision on an order.
#[derive(Debug)]
pub struct Changed {
    /// The order that the decision used.
    pub before: Box<Snapshot>,
    /// The order after the change. Equal to `before` if nothing was written.
    pub after: Box<Snapshot>,
    pub effects: Effects,
}

impl Changed {
    /// Creates the result of a decision that changed nothing.
    pub(crate) fn nothing(order: Snapshot) -> Self {
        let order = Box::new(order);
        Self { before: order.clone(), after: order, effects: Effects::default() }
    }

    /// Returns whether a change was written. Otherwise the order was already in the wanted state.
    pub fn is_written(&self) -> bool {
        self.before.order.version != self.after.order.version
    }

    /// Runs the effects except the timers, which the caller enqueues. Returns the order after the change.
    pub async fn publish(self, orders: &Orders) -> Snapshot {
        self.effects.publish(orders).await;
        *self.after
    }

    /// Runs the effects except the timers. Returns the outcome of a job that made this change, which enqueues them.
    pub async fn into_outcome(self, orders: &Orders) -> Outcome {
        match self.effects.publish(orders).await {
            Some(OrderTimers { jobs, superseded }) => Outcome::Done { then: jobs, superseded },
            None => Outcome::then_enqueue(timers::derive_jobs(&self.after)),
        }
    }
}

/// Updates of Redis that follow a committed change: the timers of the order, the waiting orders of its area, the gate,
/// and drivers who may be free again. Empty if nothing was changed.
#[derive(Debug, Default)]
#[must_use = "the caller runs, starts or publishes the effects"]
pub struct Effects(Option<Box<PendingEffects>>);

#[derive(Debug)]
struct PendingEffects {
    order: OrderId,
    timers: OrderTimers,
    hints: Hints,
    /// Whether the order was taken out of review. Its dead timers are then removed, so that they do not hold it again.
    leaves_review: bool,
    /// Whether the order searches again after it lost its driver.
    loses_driver: bool,
}

/// Timers that a changed order must have, and those that it will never need again.
#[derive(Debug)]
struct OrderTimers {
    jobs: Vec<NewJob>,
    superseded: Vec<JobAddress>,
}

/// Best-effort updates. A lost one is repaired later.
#[derive(Debug)]
struct Hints {
    waiting: Option<Command>,
    gate: Option<GateUpdate>,
    freed: Vec<DriverId>,
}

impl Effects {
    /// Prepares the effects of a committed change. Updates this process' view of the gate.
    pub(crate) fn new(orders: &Orders, before: &Snapshot, change: &Change, after: &Snapshot) -> Self {
        let rules = orders.areas.rules.get();
        let hints = Hints {
            waiting: waiting::build_update(&rules, before.order.status.is_searching(), &after.order, after.now),
            gate: accept_gate::begin_update(orders, before, change, after),
            freed: freed::freed_drivers(before, change),
        };
        Self(Some(Box::new(PendingEffects {
            order: after.order.id.clone(),
            timers: OrderTimers { jobs: timers::derive_jobs(after), superseded: superseded_timers(before, after) },
            hints,
            leaves_review: before.order.held_for_review && !after.order.held_for_review,
            loses_driver: before.order.status.occupies_driver() && after.order.status.is_searching(),
        })))
    }

    /// Runs the effects. Waits for Redis no longer than `core.patience`.
    pub async fn run(self, orders: &Orders) {
        self.start(orders).await;
    }

    /// Queues the timers, so that those of the order's next change are sent later. Returns the rest, which the caller
    /// awaits or spawns.
    pub fn start(self, orders: &Orders) -> RestOfChange {
        let Some(pending) = self.0 else { return futures_util::future::ready(()).boxed() };
        let PendingEffects { order, timers: OrderTimers { jobs, superseded }, hints, leaves_review, loses_driver } =
            *pending;
        let orders = orders.clone();
        if !leaves_review && !loses_driver {
            let timers = send_jobs(&orders, &order, jobs, superseded);
            return async move {
                tokio::join!(hints.send(&orders), timers);
            }
            .boxed();
        }
        async move {
            let timers = async {
                if leaves_review {
                    remove_dead_timers(&orders.core, &order, &jobs).await;
                }
                if loses_driver {
                    accept_gate::forget_lock(&orders, &order).await;
                }
                send_jobs(&orders, &order, jobs, superseded).await;
            };
            tokio::join!(hints.send(&orders), timers);
        }
        .boxed()
    }

    /// Sends the hints. Returns the timers.
    async fn publish(self, orders: &Orders) -> Option<OrderTimers> {
        let pending = self.0?;
        pending.hints.send(orders).await;
        Some(pending.timers)
    }
}

impl Hints {
    async fn send(&self, orders: &Orders) {
        let waiting = async {
            if let Some(update) = &self.waiting {
                waiting::send_update(&orders.core, update).await;
            }
        };
        let gate = async {
            if let Some(update) = &self.gate {
                accept_gate::send_update(orders, update).await;
            }
        };
        tokio::join!(waiting, gate, freed_drivers::record_freed(&orders.core, &self.freed, Duration::ZERO));
    }
}

async fn remove_dead_timers(core: &Core, order: &OrderId, timers: &[NewJob]) {
    let ids: Vec<_> = timers.iter().map(|job| job.id.to_string()).collect();
    let revived = Resolution::revived("its order was taken out of review");
    let done = async {
        dead_letter_rows::resolve_jobs(&core.db, &ids, &revived).await?;
        core.queue().discard(&ids, &jobs::queues::ALL).await?;
        Ok::<_, ServiceError>(())
    };
    if let Err(error) = done.await {
        tracing::warn!(order.id = %order, %error, "The dead timers of an order could not be removed.");
    }
}
