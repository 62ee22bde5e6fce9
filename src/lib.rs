//! Order dispatch on durable jobs: Redis holds the timers, Postgres the truth.
//!
//! # Layout
//!
//! * [`orders`]: rows, states, timers, and the one way they change.
//! * [`dispatch`]: own fleet: candidates, offers, attempts, lifetime.
//! * [`partner`]: orders served by a partner: bookings, job ids, callbacks.
//! * [`compensation`]: what it means for the money that the system ended an order.
//! * [`notifications`]: outbox, channels, delivery.
//! * [`periodic`]: schedules, cleanup, statistics.
//! * [`recovery`]: the reconciler, which puts back what Redis lost.
//! * [`dead_letters`]: jobs that were given up: their copy in Postgres, and another life for them.
//! * [`operator`]: what operators may do with single jobs.
//! * [`worker`]: the worker process and the common part of every handler.
//! * [`http`]: the API of producers and drivers, health, metrics.
//! * [`cli`]: one file per command of the binary `dispatchq`.
//! * [`areas`], [`admission`]: which area a place lies in, and whether it takes one more order.
//! * [`reservation`]: one order, one driver, however many press accept.
//! * [`history`]: the invariants, checked on the audit views.
//! * [`partner_sim`]: a taxi partner to dispatch to, with all its faults, as an HTTP server.
//! * [`explain`]: why an order is as it is, and what to do.
//! * `testbed`: a whole installation for one run: private servers, processes of this binary, a simulated partner.
//! * [`replay`]: real rides against simulated drivers, or a simulated partner.
//! * [`bench`]: what the queue, and orders served by a partner, do on this machine.
//! * [`catalogue`]: every metric in words.
//! * [`config`], [`db`], [`app`], [`telemetry`], [`outbound`], [`chance`]: settings, Postgres, what everything works with,
//!   logs and metrics, HTTP requests of ours, choices of simulations.
//! * [`loops`]: background loops whose turns all end, and a watchdog over them.
//! * [`plain_text`]: text of people, without what a terminal would obey.
//! * [`privacy`]: erasing what is known about a person.
//! * [`redis_keys`]: every Redis key beside the engine's.
//! * [`crash`]: where tests have a process die.
//!
//! docs/ARCHITECTURE.md walks one order through these files.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod admission;
pub mod app;
pub mod areas;
pub mod bench;
pub mod catalogue;
pub mod chance;
pub mod cli;
pub mod compensation;
pub mod config;
pub mod crash;
pub mod db;
pub mod dead_letters;
pub mod dispatch;
pub mod explain;
pub mod history;
pub mod http;
pub mod loops;
pub mod notifications;
pub mod operator;
pub mod orders;
pub mod outbound;
pub mod partner;
pub mod partner_sim;
pub mod people;
pub mod periodic;
pub mod plain_text;
pub mod privacy;
pub mod recovery;
pub mod redis_keys;
pub mod replay;
pub mod reservation;
pub mod telemetry;
mod testbed;
pub mod worker;
