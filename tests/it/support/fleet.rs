//! Real processes of the binary on servers of their own, with orders that live for seconds.

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

/// Servers, a configuration, and this process' own view of them. Children are ended by dropping them.
pub(crate) struct Fleet {
    pub(crate) app: App,
    pub(crate) redis: RedisServer,
    pub(crate) postgres: PostgresServer,
    /// Kept for as long as processes use it.
    _route: DatabaseRoute,
    dir: TempDir,
}

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the binary to its end, in this directory and with these settings alone.
pub(crate) fn run_binary(dir: &Path, args: &[&str], settings: &[(&str, &str)]) -> Printed {
    let output = command(dir, args, settings).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Printed { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// As [`run_binary`], with this on standard input.
pub(crate) fn run_binary_with_input(dir: &Path, args: &[&str], input: &str) -> Printed {
    let mut child =
        command(dir, args, &[]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // One that ends without reading it closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Printed { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Sends a request until it is answered: a process that is too busy says 503, and is asked again.
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
    /// Orders outlive their test, unless it ends them.
    pub(crate) async fn start() -> Self {
        Self::with_lifetime("1h").await
    }

    /// Orders find a driver within this time, or end.
    pub(crate) async fn with_lifetime(lifetime: &str) -> Self {
        Self::with(lifetime, "").await
    }

    /// With more configuration.
    pub(crate) async fn with(lifetime: &str, more: &str) -> Self {
        let (redis, postgres) = tokio::join!(RedisServer::start(), migrated_postgres());
        let redis = redis.unwrap();
        let route = DatabaseRoute::to(&postgres).await;
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "[redis]\nurl = \"{}\"\n[database]\nurl = \"{}\"\npooler = {}\n[http]\nbind = \"127.0.0.1:0\"\nadmin_bind = \"\"\n\
             [worker]\ndrain = \"5s\"\n[dispatch]\nattempt = \"1s\"\nretry = [\"100ms\"]\nlifetime = \"{lifetime}\"\n{more}",
            redis.url(),
            route.url(),
            route.is_pooled()
        );
        let file = dir.path().join("config.toml");
        fs::write(&file, text).unwrap();
        let mut config = settings::load_config(Some(&file)).unwrap();
        // Workers plan what a clock starts. What this process rebuilds must not come due when a minute happens to begin.
        config.schedules.clear();
        let app = App::connect(config).await.unwrap();
        // The copy has its schema; `dispatchq migrate` does the rest so.
        orders::service_types::publish(&app.core.db, &app.config).await.unwrap();
        Self { app, redis, postgres, _route: route, dir }
    }

    /// Adds tables to the configuration of processes that are yet to start.
    pub(crate) fn configure(&self, tables: &str) {
        let file = self.dir().join("config.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text + tables).unwrap();
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Printed {
        run_binary(self.dir(), args, &[])
    }

    /// The directory commands run in, with their config.toml.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts a process that stays; `name` is that of its log, and of its worker.
    pub(crate) fn spawn(&self, name: &str, args: &[&str]) -> Child {
        Child::spawn(self.dir(), name, args, &[("DISPATCHQ_WORKER__NAME", name)])
    }

    /// Starts a process that stays and shows health and metrics, and returns where.
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

    /// A worker that is there: orders created from now on have all their time.
    pub(crate) async fn running_worker(&self, name: &str) -> Child {
        let worker = self.worker(name);
        eventually("the worker shows up", || async {
            self.app.core.store.list_workers().await.is_ok_and(|workers| workers.iter().any(|w| w.replica == name))
        })
        .await;
        worker
    }

    /// A worker that differs in these settings.
    pub(crate) fn worker_with(&self, name: &str, settings: &[(&str, &str)]) -> Child {
        let settings = [&[("DISPATCHQ_WORKER__NAME", name)], settings].concat();
        Child::spawn(self.dir(), name, &["work"], &settings)
    }

    /// The API, and where it answers.
    pub(crate) async fn api(&self) -> (Child, String) {
        self.api_with(&[]).await
    }

    /// The API with these settings, and where it answers.
    pub(crate) async fn api_with(&self, settings: &[(&str, &str)]) -> (Child, String) {
        self.api_named("api", settings).await
    }

    /// One of several APIs with these settings, and where it answers; `name` is that of its log.
    pub(crate) async fn api_named(&self, name: &str, settings: &[(&str, &str)]) -> (Child, String) {
        let api = Child::spawn(self.dir(), name, &["serve"], settings);
        eventually("the API listens", || async { api.address().is_some() }).await;
        let address = api.address().unwrap();
        (api, format!("http://{address}"))
    }

    /// Has Postgres refuse writes in every session, as in a failover, or take them again.
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

    /// Waits until a query answers at least this.
    pub(crate) async fn reach(&self, at_least: i64, query: &str) {
        eventually(query, || async { self.count(query).await >= at_least }).await;
    }

    /// Waits until every order has ended and every message has left.
    pub(crate) async fn at_rest(&self) {
        let open = "SELECT (SELECT count(*) FROM orders WHERE closed_at IS NULL AND NOT held_for_review)
                    + (SELECT count(*) FROM outbox WHERE state = 'pending')";
        eventually("all orders have ended", || async { self.count(open).await == 0 }).await;
    }
}

/// A process of ours. Dropping it kills it; if its test fails, the end of its log is printed.
pub(crate) struct Child {
    process: process::Child,
    log: PathBuf,
}

impl Child {
    /// Starts the binary in this directory, where its log goes too, with these settings alone.
    pub(crate) fn spawn(dir: &Path, name: &str, args: &[&str], settings: &[(&str, &str)]) -> Self {
        Self::start(dir, name, command(dir, args, settings))
    }

    /// Starts another way of running the binary. Its log goes to this directory.
    pub(crate) fn start(dir: &Path, name: &str, mut command: Command) -> Self {
        let log = dir.join(format!("{name}.log"));
        let file = File::create(&log).unwrap();
        let process = command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Self { process, log }
    }

    /// Like a crash.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        self.process.kill().unwrap();
        self.process.wait().unwrap()
    }

    /// Asks it to end in good order.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.process.id());
        assert!(Command::new("/bin/sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Results written and refused, as it says after its end.
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

    /// Waits for its end.
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

    /// A field of the first line of its log that says this.
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
