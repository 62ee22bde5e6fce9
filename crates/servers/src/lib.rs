//! Private servers on free loopback ports: a redis-server and a Postgres that belong to this process.
//! Design: docs/design/tests.md.
//!
//! `dev`, `replay`, the benchmarks and the tests start their own instead of asking for a running one. [`RedisServer`] and
//! [`PostgresServer`] share one life: `start` (throw-away data) or `start_in` (data kept in a directory), then `stop`, `kill`
//! and `restart` as often as a test likes, and dropping ends the process and removes throw-away data. `detach` leaves
//! the server running instead.
//!
//! Layout:
//! - [`redis`], [`postgres`]: how each is set up, when it is ready, and what its signals mean; backups, standbys and a pooler of Postgres;
//! - [`sentinel`], [`cluster`], [`tls`]: what else a Redis of production has: sentinels that fail over, several masters, and encryption;
//! - [`prometheus`]: a Prometheus that watches processes of a run;
//! - [`proxy`]: a way to a server that can be made slow or stuck;
//! - `server`: the life both share, from a free port to the last log lines of one that would not start;
//! - `process`: one child process, ended by pid and always reaped;
//! - `watchdog`: ends the server when this process is killed and can no longer do it;
//! - `home`: the directory with its data, log and lock;
//! - `programs`, `ports`, `account`: where the binaries are, which port is free, and whom Postgres runs as under root;
//! - `login`: the password of Postgres; `template`: a cluster that is made once and copied for each test.
//!
//! Nothing here writes outside a server's own directory and a template's, ends a process it did not start, or listens beyond loopback.

mod account;
pub mod cluster;
mod error;
mod home;
mod login;
mod ports;
pub mod postgres;
mod process;
mod programs;
pub mod prometheus;
pub mod proxy;
pub mod redis;
pub mod sentinel;
mod server;
mod template;
pub mod tls;
mod watchdog;

pub use cluster::RedisCluster;
pub use error::ServerError;
pub use ports::free_port;
pub use postgres::{PgBouncer, PostgresBackup, PostgresServer};
pub use prometheus::{PrometheusServer, ScrapeSettings};
pub use proxy::TcpProxy;
pub use redis::RedisServer;
pub use sentinel::SentinelGroup;
pub use server::DetachedServer;
pub use tls::TlsEndpoint;
