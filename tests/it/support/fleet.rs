//! Real processes of the binary on their own servers, with orders that live for seconds.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{self, Command, ExitStatus, Stdio},
    time::Instant,
};

use servers::{PostgresServer, RedisServer};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;

use app::{App, settings};
use test_support::{PATIENCE, eventually, migrated_postgres, millis, route::DatabaseRoute};

/// Lines of a child's log shown when its test fails.
const TAIL: usize = 40;

/// Servers, a configuration, and this process' own view of them. Children are killed when they are dropped.
pub(crate) struct Fleet {
    pub(crate) app: App,
    pub(crate) redis: RedisServer,
    pub(crate) postgres: PostgresServer,
    /// Keeps the route open while processes use it.
    _route: DatabaseRoute,
    dir: TempDir,
}

/// Output and exit code of a command.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the binary to its end in this directory, with only these settings.
pub(crate) fn run_binary(dir: &Path, args: &[&str], settings: &[(&str, &str)]) -> Printed {
    let output = command(dir, args, settings).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Printed { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Like [`run_binary`], with `input` on standard input.
pub(crate) fn run_binary_with_input(dir: &Path, args: &[&str], input: &str) -> Printed {
    let mut child =
        command(dir, args, &[]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that exits without reading its input closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Printed { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Sends a request and repeats it while the process answers 503 because it is too busy.
pub(crate) async fn send_until_answered(request: reqwest::RequestBuilder) -> reqwest::Response {
    let request = request.header("idempotency-key", uuid::Uuid::new_v4().to_string());
    let begun = Instant::now();
    loop {
        let answer = request.try_clone().unwrap().send().await.unwrap();
        if answer.status() != 503 || begun.elapsed() > PATIENCE {
            return answer;
        }
        tokio::time::sleep(millis(100)).await;
    }
}

fn command(dir: &Path, args: &[&str], settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dispatchq"));
    command.args(args).current_dir(dir).env_remove("RUST_LOG");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DISPATCHQ_")) {
        command.env_remove(name);
    }
    command.envs(settings.iter().copied());
    command
}

impl Fleet {
    /// Starts servers whose orders outlive the test unless the test ends them.
    pub(crate) async fn start() -> Self {
        Self::with_lifetime("1h").await
    }

    /// Starts servers whose orders end after `lifetime` without a driver.
    pub(crate) async fn with_lifetime(lifetime: &str) -> Self {
        Self::with(lifetime, "").await
    }

    /// Like [`with_lifetime`](Self::with_lifetime), with more configuration.
    pub(crate) async fn with(lifetime: &str, more: &str) -> Self {
        let (redis, postgres) = tokio::join!(RedisServer::start(), migrated_postgres());
        let redis = redis.unwrap();
        let route = DatabaseRoute::to(&postgres).await;
        let dir = tempfile::tempdir().unwrap();
        // On a busy machine jobs are late, and a request without retries would be refused.
        let text = format!(
            "[redis]\nurl = \"{}\"\n[database]\nurl = \"{}\"\npooler = {}\n[http]\nbind = \"127.0.0.1:0\"\nadmin_bind = \"\"\n\
             max_lateness = \"0s\"\n[worker]\ndrain = \"5s\"\n[dispatch]\nattempt = \"1s\"\nretry = [\"100ms\"]\nlifetime = \"{lifetime}\"\n{more}",
            redis.url(),
            route.url(),
            route.is_pooled()
        );
        let file = dir.path().join("config.toml");
        fs::write(&file, text).unwrap();
        let mut config = settings::load_config(Some(&file)).unwrap();
        // Workers plan the scheduled jobs. A rebuild by this process must not make one due when a minute starts.
        config.schedules.clear();
        let app = App::connect(config).await.unwrap();
        // The copied database has its schema. This call does the rest of `dispatchq migrate`.
        orders::service_types::publish(&app.core.db, &app.config).await.unwrap();
        Self { app, redis, postgres, _route: route, dir }
    }

    /// Adds tables to the configuration of processes that start later.
    pub(crate) fn configure(&self, tables: &str) {
        let file = self.dir().join("config.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text + tables).unwrap();
    }

    pub(crate) fn run(&self, args: &[&str]) -> Printed {
        run_binary(self.dir(), args, &[])
    }

    /// Returns the directory in which commands run. It contains their config.toml.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts a long-running process. `name` names its log and its worker.
    pub(crate) fn spawn(&self, name: &str, args: &[&str]) -> Child {
        Child::spawn(self.dir(), name, args, &[("DISPATCHQ_WORKER__NAME", name)])
    }

    /// Starts a long-running process with health and metrics, and returns their address.
    pub(crate) async fn spawn_showing(&self, name: &str, args: &[&str]) -> (Child, String) {
        let settings = [
            ("DISPATCHQ_WORKER__NAME", name),
            ("DISPATCHQ_WORKER__ADMIN_BIND", "127.0.0.1:0"),
            ("DISPATCHQ_HTTP__ADMIN_BIND", "127.0.0.1:0"),
        ];
        let child = Child::spawn(self.dir(), name, args, &settings);
        let address = || child.said("Serving health and metrics", "address");
        eventually("it shows health and metrics", || async { address().is_some() }).await;
        let address = address().unwrap();
        (child, address)
    }

    pub(crate) fn worker(&self, name: &str) -> Child {
        self.spawn(name, &["work"])
    }

    /// Starts a worker and waits until it is registered. Orders created from now on have their full time.
    pub(crate) async fn running_worker(&self, name: &str) -> Child {
        let worker = self.worker(name);
        eventually("the worker shows up", || async {
            self.app.core.store.list_workers().await.is_ok_and(|workers| workers.iter().any(|w| w.replica == name))
        })
        .await;
        worker
    }

    /// Starts a worker with additional settings.
    pub(crate) fn worker_with(&self, name: &str, settings: &[(&str, &str)]) -> Child {
        let settings = [&[("DISPATCHQ_WORKER__NAME", name)], settings].concat();
        Child::spawn(self.dir(), name, &["work"], &settings)
    }

    /// Starts the API and returns its address.
    pub(crate) async fn api(&self) -> (Child, String) {
        self.api_with(&[]).await
    }

    /// Starts the API with these settings and returns its address.
    pub(crate) async fn api_with(&self, settings: &[(&str, &str)]) -> (Child, String) {
        self.api_named("api", settings).await
    }

    /// Starts one of several APIs with these settings and returns its address. `name` names its log.
    pub(crate) async fn api_named(&self, name: &str, settings: &[(&str, &str)]) -> (Child, String) {
        self.listening(name, &["serve"], settings).await
    }

    /// Starts a process that listens, such as `serve` or `run`, and returns its address.
    pub(crate) async fn listening(&self, name: &str, args: &[&str], settings: &[(&str, &str)]) -> (Child, String) {
        let api = Child::spawn(self.dir(), name, args, settings);
        eventually("the API listens", || async { api.address().is_some() }).await;
        let address = api.address().unwrap();
        (api, format!("http://{address}"))
    }

    /// Makes Postgres refuse writes in every session, as in a failover, or accept them again.
    pub(crate) async fn set_read_only(&self, refuses: bool) {
        let setting = if refuses {
            "ALTER SYSTEM SET default_transaction_read_only = on"
        } else {
            "ALTER SYSTEM RESET default_transaction_read_only"
        };
        let mut session = PgConnection::connect(&self.postgres.url()).await.unwrap();
        for statement in ["SET default_transaction_read_only = off", setting, "SELECT pg_reload_conf()"] {
            sqlx::raw_sql(statement).execute(&mut session).await.unwrap();
        }
    }

    pub(crate) async fn count(&self, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&self.app.core.db).await.unwrap_or(-1)
    }

    /// Waits until a query returns at least this count.
    pub(crate) async fn reach(&self, at_least: i64, query: &str) {
        eventually(query, || async { self.count(query).await >= at_least }).await;
    }

    /// Waits until every order is closed and every message is sent.
    pub(crate) async fn at_rest(&self) {
        let open = "SELECT (SELECT count(*) FROM orders WHERE closed_at IS NULL AND NOT held_for_review)
                    + (SELECT count(*) FROM outbox WHERE state = 'pending')";
        eventually("all orders have ended", || async { self.count(open).await == 0 }).await;
    }
}

/// A process of the binary. Dropping it kills it. If its test fails, the last lines of its log are printed.
pub(crate) struct Child {
    process: process::Child,
    log: PathBuf,
}

impl Child {
    /// Starts the binary in this directory with only these settings. Its log is written there.
    pub(crate) fn spawn(dir: &Path, name: &str, args: &[&str], settings: &[(&str, &str)]) -> Self {
        Self::start(dir, name, command(dir, args, settings))
    }

    /// Starts the binary through another command. Its log is written to this directory.
    pub(crate) fn start(dir: &Path, name: &str, mut command: Command) -> Self {
        let log = dir.join(format!("{name}.log"));
        let file = File::create(&log).unwrap();
        let process = command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Self { process, log }
    }

    /// Kills the process with SIGKILL, like a crash.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        self.process.kill().unwrap();
        self.process.wait().unwrap()
    }

    /// Requests a graceful shutdown.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.process.id());
        assert!(Command::new("/bin/sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Returns the numbers of written and refused results that the process logs when it exits.
    pub(crate) fn settled_and_refused(&self) -> (u64, u64) {
        let log = self.log();
        let drained =
            log.lines().find(|line| line.contains("Drained.")).unwrap_or_else(|| panic!("not drained: {log}"));
        let count = |name: &str| drained.split_once(name).unwrap().1.split(' ').next().unwrap().parse().unwrap();
        (count("settled="), count("refused="))
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// Waits until the process exits.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let ended = async {
            loop {
                if let Some(status) = self.process.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.unwrap_or_else(|_| panic!("still runs after {PATIENCE:?}"))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn address(&self) -> Option<String> {
        self.said("Serving the API", "address")
    }

    /// Returns a field of the first log line that contains `message`.
    pub(crate) fn said(&self, message: &str, field: &str) -> Option<String> {
        let log = self.log();
        let (_, rest) = log.lines().find(|line| line.contains(message))?.split_once(&format!("{field}="))?;
        Some(rest.split(' ').next().unwrap_or_default().to_owned())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            eprintln!("{}:\n{}", self.log.display(), lines[lines.len().saturating_sub(TAIL)..].join("\n"));
        }
    }
}
