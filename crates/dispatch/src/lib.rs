//! The services of order dispatch: Redis holds the timers, Postgres the truth.
//!
//! # Layout
//!
//! * [`orders`]: rows, states, timers, and the one way they change.
//! * [`fleet`]: drivers of one's own: where they are, candidates, offers, attempts, lifetime.
//! * [`partner`]: orders served by a partner: bookings, job ids, callbacks.
//! * [`compensation`]: what it means for the money that the system ended an order.
//! * [`notifications`]: outbox, channels, delivery.
//! * [`periodic`]: schedules, cleanup, statistics.
//! * [`recovery`]: the reconciler, which puts back what Redis lost.
//! * [`dead_letters`]: jobs that were given up: their copy in Postgres, and requeueing them.
//! * [`operator`]: what operators may do with single jobs.
//! * [`worker`]: the worker process and the common part of every handler.
//! * [`areas`], [`admission`]: which area a place lies in, and whether it takes one more order.
//! * [`reservation`]: one order, one driver, however many press accept.
//! * [`accounts`]: API keys and users. [`request_limits`]: how often they may ask. [`actor`]: who did something.
//! * [`audit`]: the invariants, checked on the audit views.
//! * [`explain`]: why an order is as it is, and what to do.
//! * [`metrics_list`]: every metric in words.
//! * [`config`], [`db`], [`app`], [`telemetry`], [`outbound`]: settings, Postgres, what everything works with, logs and
//!   metrics, HTTP requests of ours.
//! * [`loops`]: background loops whose turns all end, and a watchdog over them.
//! * [`privacy`]: erasing what is known about a person.
//! * [`redis_keys`]: every Redis key beside the engine's.
//! * [`system`]: this machine's clock and generator.
//! * [`crash`]: where tests have a process die.
//!
//! docs/ARCHITECTURE.md walks one order through these files.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod accounts;
pub mod admission;
pub mod app;
pub mod areas;
pub mod audit;
pub mod compensation;
pub mod config;
pub mod crash;
pub mod db;
pub mod dead_letters;
pub mod explain;
pub mod fleet;
pub mod loops;
pub mod metrics_list;
pub mod notifications;
pub mod operator;
pub mod orders;
pub mod outbound;
pub mod partner;
pub mod periodic;
pub mod privacy;
pub mod recovery;
pub mod redis_keys;
pub mod request_limits;
pub mod reservation;
pub mod system;
pub mod telemetry;
pub mod worker;

pub use model::actor;
pub use model::plain_text;
