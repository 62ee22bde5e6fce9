//! A whole installation to play with: what a replay and a load test run on.
//!
//! Redis and Postgres are private servers, `serve` and `work` are processes of this very binary, and all who take part
//! comes by HTTP and webhooks as in production. A speed divides the order's own durations; leases, HTTP timeouts and
//! repairs keep their real length, so what a killed worker costs is seen as it is.
//!
//! * [`testbed`]: the `private_servers` and all that is torn down again. [`settings`]: their configuration; [`run_dir`]:
//!   where it and the logs lie. [`processes`]: `serve` and `work`; `readiness` waits for them, `watchdog` ends them if we die
//!   first.
//! * [`partner`]: the simulated partner beside it. [`provider`]: the simulated provider, and bindings on it.
//! * [`producer`]: creates orders, each at its time. [`drivers`]: answer offers. [`api`]: the HTTP calls of both and of operators.
//!   [`place_log`]: what a producer was told about places in areas. [`scrape`]: what a process shows at /metrics.
//! * [`play`]: plays orders until [`rest`]: is everything settled? [`figures`]: what the history says, in numbers.
//! * [`progress`]: how far it is, for people. [`print`]: what came of it. [`signals`]: an interrupted run.

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
