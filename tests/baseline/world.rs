//! One installation under a clock that the test moves: `dispatchq dev` with its Redis and Postgres, API and worker.
//!
//! A library loaded into every process adds the seconds in a shared file to the system clock. A wait of hours therefore
//! ends at once for Postgres, Redis and the binary, with the default durations.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant, SystemTime},
};

use reqwest::Method;
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgPool, Row};

use crate::stubs::Stubs;

/// Start of the run: Monday, 2 March 2026, 01:00 UTC, so that days and weekdays are the same in each run.
const BEGIN: i64 = 1_772_413_200;

/// Maximum time to wait for a result. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(45);
const POLL: Duration = Duration::from_millis(50);

/// Answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

/// Output of a command.
pub struct Output {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub struct World {
    dir: tempfile::TempDir,
    dev: Child,
    clock: File,
    offset: AtomicI64,
    http: reqwest::Client,
    pub url: String,
    pub metrics: String,
    pub admin: String,
    pub db: PgPool,
    pub stubs: Stubs,
}

impl World {
    /// Starts the installation with `config`. `STUBS` in it is replaced by the address of the test's own servers.
    pub async fn start(config: &str) -> World {
        let stubs = Stubs::start().await;
        let dir = tempfile::Builder::new().prefix("baseline-").tempdir().expect("a directory");
        // Postgres may run as another user, which also loads the library.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("own directory");
        let clock = File::create(dir.path().join("clock")).expect("the clock's file");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
        let offset = BEGIN - i64::try_from(now).expect("before the year 292e9");
        clock.write_all_at(&offset.to_ne_bytes(), 0).expect("the clock is set");
        let library = clock_library(dir.path());
        fs::write(dir.path().join("config.toml"), config.replace("STUBS", stubs.address())).expect("the configuration");
        let mut command = program(dir.path());
        command.args(["--config", "config.toml", "dev", "--data", "data", "--bind", "127.0.0.1:0"]);
        command.env("LD_PRELOAD", library).env("BASELINE_CLOCK", dir.path().join("clock"));
        command.stdout(File::create(dir.path().join("out")).expect("a file"));
        command.stderr(File::create(dir.path().join("log")).expect("a file"));
        let dev = command.spawn().expect("the binary starts");
        let mut world = World {
            dir,
            dev,
            clock,
            offset: AtomicI64::new(offset),
            http: client(),
            stubs,
            url: String::new(),
            metrics: String::new(),
            admin: String::new(),
            db: PgPool::connect_lazy("postgres://none").expect("a URL"),
        };
        world.read_banner().await;
        world
    }

    /// Waits for the lines that `dev` prints and connects.
    async fn read_banner(&mut self) {
        let begin = Instant::now();
        let banner = loop {
            let banner = fs::read_to_string(self.dir.path().join("out")).expect("output");
            if banner.contains("\nTry:") {
                break banner;
            }
            let ended = self.dev.try_wait().expect("a child");
            assert!(ended.is_none() && begin.elapsed() < PATIENCE, "dev did not start\n{}", self.log());
            tokio::time::sleep(POLL).await;
        };
        let word = |name: &str| {
            let line =
                banner.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {banner}"));
            line.split_whitespace().nth(1).expect("a value").to_owned()
        };
        self.url = word("API").trim_end_matches("/api/v1/orders").to_owned();
        (self.admin, self.metrics) = (word("Key"), word("Metrics"));
        self.db = PgPool::connect(&word("Postgres")).await.expect("Postgres answers");
        let rows = self.rows("SELECT extract(epoch FROM now())::bigint - $1::bigint", &BEGIN.to_string()).await;
        assert!(
            rows[0].parse::<i64>().is_ok_and(|secs| (0..120).contains(&secs)),
            "Postgres has the moved clock: {rows:?}"
        );
    }

    /// Moves every clock forward after no job is due or running.
    pub async fn jump(&self, secs: i64) {
        self.quiet().await;
        let offset = self.offset.fetch_add(secs, Ordering::SeqCst) + secs;
        self.clock.write_all_at(&offset.to_ne_bytes(), 0).expect("the clock is moved");
    }

    /// Returns the seconds since 1970 on the moved clock.
    pub fn now(&self) -> i64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
        i64::try_from(now).expect("before the year 292e9") + self.offset.load(Ordering::SeqCst)
    }

    /// Waits until no job is due or running, no message is in flight, and the history does not change.
    pub async fn quiet(&self) {
        let mut before = None;
        self.until("the system is quiet", async || {
            let now = self.activity().await;
            let still = now.is_some() && now == before;
            before = now;
            still
        })
        .await;
    }

    /// Returns a measure of past activity, or `None` while a job is due or running.
    async fn activity(&self) -> Option<String> {
        let queues = self.ask(&self.admin, Method::GET, "/api/v1/admin/queues", None).await.body;
        let queues = queues["queues"].as_array().or(queues.as_array()).expect("a list of queues");
        let busy = queues.iter().any(|queue| queue["due"] != 0 || queue["leased"] != 0);
        let counts = "SELECT (SELECT count(*) FROM audit_events) || ' ' || (SELECT count(*) FROM audit_binding_events) || ' ' || \
                      (SELECT count(*) FROM audit_notifications WHERE state = 'pending') || ' ' || \
                      (SELECT count(*) FROM audit_binding_notifications WHERE state = 'pending') || ' ' || \
                      (SELECT count(*) FROM audit_provider_calls) AS text WHERE $1::text IS NOT NULL";
        let counts = self.rows(counts, "").await.remove(0);
        (!busy && counts.contains(" 0 0 ")).then(|| format!("{counts} {}", self.stubs.count()))
    }

    /// Waits until a condition holds.
    pub async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let begin = Instant::now();
        while !holds().await {
            if begin.elapsed() > PATIENCE {
                let newest = "SELECT concat_ws(' ', at, order_id, to_status, reason) FROM audit_events WHERE position(order_id IN $1) > 0 ORDER BY seq";
                panic!("timed out: {what}\n{}\n{}", self.rows(newest, what).await.join("\n"), self.log());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the first row of a query with parameter `id` is the text `wanted`.
    pub async fn until_row(&self, query: &str, id: &str, wanted: &str) {
        self.until(&format!("{id} {wanted}: {query}"), async || {
            self.rows(query, id).await.first().is_some_and(|row| row == wanted)
        })
        .await;
    }

    /// Returns the first column of a query with parameter `id`, as text.
    pub async fn rows(&self, query: &str, id: &str) -> Vec<String> {
        let query = format!("SELECT r::text FROM ({query}) q (r)");
        let rows = sqlx::query(AssertSqlSafe(query)).bind(id).fetch_all(&self.db).await.expect("the query is valid");
        rows.iter().map(|row| row.get::<Option<String>, _>(0).unwrap_or_default()).collect()
    }

    /// Sends a request with a key.
    pub async fn ask(&self, key: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
        let request = self.http.request(method, format!("{}{path}", self.url));
        let request = if key.is_empty() { request } else { request.bearer_auth(key) };
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        read(request).await
    }

    /// Sends a body with the given headers.
    pub async fn send(&self, path: &str, headers: &[(&str, String)], body: String) -> Answer {
        let mut request = self.http.post(format!("{}{path}", self.url)).header("Content-Type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        read(request.body(body)).await
    }

    /// Returns the content of the metrics port.
    pub async fn scrape(&self) -> String {
        self.http.get(&self.metrics).send().await.expect("the port answers").text().await.expect("text")
    }

    /// Runs a command on this installation, with `input` as its standard input.
    pub fn run(&self, args: &[&str], input: &str) -> Output {
        let mut command = program(self.dir.path());
        let offset = self.dir.path().join("clock");
        command.env("LD_PRELOAD", self.dir.path().join("clock.so")).env("BASELINE_CLOCK", offset);
        command.arg("--config").arg("data/config.toml").args(args);
        let file = self.dir.path().join("input");
        fs::write(&file, input).expect("the input is written");
        let output = command.stdin(File::open(&file).expect("the input")).output().expect("the binary starts");
        let dir = self.dir.path().to_str().expect("a path of text");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text").replace(dir, "DIR");
        Output { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for World {
    /// Stops `dev` gracefully, including its servers.
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-INT", &self.dev.id().to_string()]).status();
        let begin = Instant::now();
        while self.dev.try_wait().is_ok_and(|status| status.is_none()) && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(POLL);
        }
        let _ = self.dev.kill();
        let _ = self.dev.wait();
    }
}

async fn read(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.expect("the API answers");
    let status = response.status().as_u16();
    let text = response.text().await.expect("a body");
    Answer { status, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
}

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().expect("a client")
}

/// Returns the binary without the environment variables of the test.
fn program(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dispatchq"));
    command.current_dir(dir).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null());
    command
}

/// Compiles the library with the compiler that links Rust programs.
fn clock_library(dir: &Path) -> PathBuf {
    let library = dir.join("clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/baseline/clock.c");
    let output =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).args([source, "-ldl"]).output();
    let output = output.expect("cc is there, for Rust needs it too");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}
