//! A complete installation for replays and benchmarks.
//!
//! Redis and Postgres are private servers, `serve` and `work` are processes of this binary. All clients use HTTP and
//! webhooks, as in production. A speed divides the durations of orders. Leases, HTTP timeouts and repairs keep their
//! real length, so the cost of a killed worker is realistic.
//!
//! * [`testbed`]: the `private_servers` and everything that is stopped at the end. [`settings`]: their configuration;
//!   [`run_dir`]: directory of the configuration and the logs. [`processes`]: `serve` and `work`; `readiness` waits for
//!   them, `watchdog` ends them if this process dies first.
//! * [`partner`]: the simulated partner. [`provider`]: the simulated provider, and bindings on it.
//! * [`producer`]: creates orders, each at its time. [`drivers`]: answer offers. [`api`]: HTTP requests of both and of
//!   operators. [`place_log`]: admission results that a producer got. [`scrape`]: parser of /metrics.
//! * [`play`]: plays orders until [`rest`] finds everything settled. [`figures`]: figures from the history.
//! * [`progress`]: progress for people. [`print`]: prints results. [`signals`]: interrupted runs.

pub(crate) mod api;
pub(crate) mod drivers;
pub(crate) mod figures;
pub mod partner;
pub(crate) mod place_log;
pub(crate) mod play;
pub(crate) mod print;
mod private_servers;
pub(crate) mod processes;
pub(crate) mod producer;
pub(crate) mod progress;
pub mod provider;
mod readiness;
pub(crate) mod rest;
pub(crate) mod run_dir;
pub(crate) mod scrape;
pub(crate) mod settings;
pub(crate) mod signals;
#[expect(clippy::module_inception, reason = "the folder is named after what it holds")]
mod testbed;
mod watchdog;

pub(crate) use private_servers::{serve_local, start_private_app, start_private_postgres};
pub use settings::ServedBy;
pub(crate) use settings::TestbedSettings;
pub(crate) use testbed::{ConsoleLogin, KeptServers, ServerProxies, Testbed};
