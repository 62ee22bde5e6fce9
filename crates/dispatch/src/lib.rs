//! The services of order dispatch: Redis holds the timers, Postgres the truth.
//!
//! # Layout
//!
//! From the leaves up; a room knows only those above it in this list.
//!
//! * [`timer_calls`], [`unsent_timers`], [`gate_views`]: see orders. [`config`]: the settings and their rules. [`strict_json`]: JSON of imports and
//!   requests. [`request_limits`]: how often keys and addresses may ask. Below them all is the crate `foundation`.
//! * [`accounts`]: API keys and users. [`areas`]: where areas are, and how many orders may wait in each. [`offers`]: what
//!   drivers are being asked. [`order_feed`]: the steps of orders, as producers read them.
//! * [`channels`]: how one message travels: log, webhook, Slack, e-mail, ticket, call.
//! * [`partner_client`]: how partners are called. [`payment_client`]: how the payment service is. [`otp_seal`]: OTPs while they wait. [`provider_client`]: how providers
//!   are called. [`binding_store`], [`order_store`]: bindings and orders as rows, many in one statement.
//! * [`oidc`]: how people sign in at a provider of OpenID Connect.
//! * [`notifications`]: outbox, alerts.
//! * [`shard_map`]: how many shards the queue has.
//! * [`app`]: what every command, handler and request works with.
//! * [`admission`]: whether an area takes one more order.
//! * [`orders`]: rows, states, timers, and the one way they change; who takes an order when many press accept.
//! * [`bindings`]: accounts at providers, on which one transaction follows the other.
//! * [`fleet`]: drivers of one's own: where they are, candidates, lifetime. [`partner`]: orders served by a partner.
//! * [`service_types`]: the configured service types in Postgres. [`settings`]: loads the configuration, and checks what must be built to be checked.
//! * [`compensation`]: what it means for the money that the system ended an order.
//! * [`reports`]: counts for people. [`explain`]: why an order is as it is, and what to do. [`privacy`]: erasing what is known
//!   about a person. [`metrics_list`]: every metric in words.
//! * [`dead_letters`]: jobs that were given up: their copy in Postgres, and requeueing them.
//! * [`plans`]: mass actions, stored with their exact ids before they are done.
//! * [`recovery`]: the reconciler, which puts back what Redis lost. [`audit`]: the invariants, checked on the audit views.
//! * [`periodic`]: schedules, cleanup, statistics. [`operator`]: what staff do with single jobs and orders.
//! * [`handlers`]: what performs each job. [`worker`]: the worker process.
//!
//! docs/ARCHITECTURE.md walks one order through these files.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod accounts;
pub mod admission;
pub mod app;
pub mod areas;
pub mod audit;
pub mod binding_store;
pub mod bindings;
pub mod capabilities;
pub mod channels;
pub mod compensation;
pub mod config;
pub mod dead_letters;
pub mod explain;
pub mod fleet;
pub mod gate_views;
pub mod handlers;
pub mod metrics_list;
pub mod notifications;
pub mod offers;
pub mod oidc;
pub mod operator;
pub mod order_feed;
pub mod order_store;
pub mod orders;
pub mod otp_seal;
pub mod partner;
pub mod partner_client;
pub mod payment_client;
pub mod periodic;
pub mod plans;
pub mod privacy;
pub mod provider_client;
mod provider_hosts;
pub mod recovery;
pub mod reports;
pub mod request_limits;
pub mod service_types;
pub mod settings;
pub mod shard_map;
pub mod strict_json;
pub mod timer_calls;
pub mod unsent_timers;
pub mod worker;

pub use model::actor;
pub use model::ids;
pub use model::key_name;
pub use model::plain_text;
