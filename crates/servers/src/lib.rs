//! Private servers on free loopback ports: a redis-server and a Postgres that belong to this process. Design:
//! docs/design/tests.md.
//!
//! `dev`, `replay`, the benchmarks and the tests start their own servers instead of requiring running ones.
//! [`RedisServer`] and [`PostgresServer`] have the same life cycle. `start` uses throw-away data, `start_in` keeps the
//! data in a directory. `stop`, `kill` and `restart` can be called any number of times. Dropping a server ends the
//! process and removes throw-away data. `detach` leaves the server running instead.
//!
//! Layout:
//! - [`redis`], [`postgres`]: setup, readiness and signals of each server; backups, standbys and a pooler of Postgres,
//!   and counts of its work;
//! - [`sentinel`], [`cluster`], [`tls`]: other setups of a production Redis: sentinels with failover, several masters,
//!   and encryption;
//! - [`prometheus`]: a Prometheus that scrapes the processes of a run;
//! - [`proxy`]: a TCP proxy that can be slow or stuck;
//! - `server`: the shared life cycle, from a free port to the last log lines of a failed start;
//! - `process`: one child process, ended by pid and always reaped;
//! - `watchdog`: ends the server if this process is killed;
//! - `home`: the directory with data, log and lock;
//! - `programs`, `ports`, `account`: paths of binaries, free ports, and the user of Postgres under root;
//! - `login`: the password of Postgres; `template`: a cluster that is made once and copied for each test.
//!
//! This crate writes only to a server's own directory and its template, ends only processes that it started, and
//! listens only on loopback.

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
pub use postgres::{PgBouncer, PostgresBackup, PostgresServer, StatementWork, TableWork, WorkCounts, WorkStart};
pub use programs::check_installed;
pub use prometheus::{PrometheusServer, ScrapeSettings};
pub use proxy::TcpProxy;
pub use redis::RedisServer;
pub use sentinel::SentinelGroup;
pub use server::DetachedServer;
pub use tls::TlsEndpoint;
