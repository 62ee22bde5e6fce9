//! dispatchq on its own Redis and Postgres, with a clock that the test moves.

use std::{
    env,
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use model::clock::Clock;
use redis::{AsyncConnectionConfig, FromRedisValue};
use servers::{PostgresServer, RedisServer};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

use crate::{eventually, route::DatabaseRoute, secs};
use app::App;
use foundation::{
    config::database::DatabaseConfig,
    core::CoreParts,
    db::{self, history_days},
    system::DatabaseClock,
};
use maintenance::{
    audit::{self, InvariantViolation},
    proof::slice,
    recovery::{rebuild::Rebuild, repair},
};
use queue::{RedisConfig, ScriptClock, Store};
use settings::Config;

/// Start of moved time: 2030-01-01 08:00:00 UTC.
const START_MS: u64 = 1_893_484_800_000;
const DAY_MS: u64 = 24 * 3_600_000;

/// Timeout for Redis queries that are optional in production. Tests check the results, so they wait for a busy machine.
const HINT_TIMEOUT: Duration = Duration::from_secs(30);

/// The application, its servers and its clock. Dropping it stops the servers.
#[derive(Debug)]
pub struct TestApp {
    pub app: App,
    pub redis: RedisServer,
    pub postgres: PostgresServer,
    /// Keeps the pooler running while the application is used.
    _route: DatabaseRoute,
    /// `None` uses real time.
    clock: Option<Arc<AtomicU64>>,
    pub(crate) takes: AtomicU64,
}

impl TestApp {
    /// Starts with a stopped clock and the shipped configuration, except for two settings. It has no schedules, and
    /// after five minutes an order searches only every five minutes.
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Like [`start`](Self::start), but changes the configuration first.
    pub async fn with(configure: impl FnOnce(&mut Config)) -> Self {
        Self::build(stopped_postgres(), configure, Some(Arc::new(AtomicU64::new(START_MS)))).await
    }

    /// Like [`start`](Self::start), but with the rows that `statements` insert. The first test of a day runs the
    /// statements; later tests copy the resulting cluster.
    pub async fn with_rows(name: &str, statements: &'static str) -> Self {
        let mut hasher = DefaultHasher::new();
        statements.hash(&mut hasher);
        let kind = format!("-{name}-{:016x}", hasher.finish());
        let fill = async |pool: &foundation::db::Pool| {
            stop_clock(pool).await;
            let mut session = pool.acquire().await.unwrap().detach().unwrap();
            sqlx::raw_sql("SET statement_timeout = 0").execute(&mut session).await.unwrap();
            sqlx::raw_sql(statements).execute(&mut session).await.unwrap();
        };
        Self::build(copy_postgres(&kind, fill), |_| {}, Some(Arc::new(AtomicU64::new(START_MS)))).await
    }

    /// Starts on real time, for tests of races.
    pub async fn on_real_time(configure: impl FnOnce(&mut Config)) -> Self {
        Self::build(migrated_postgres(), configure, None).await
    }

    async fn build(
        postgres: impl Future<Output = PostgresServer>,
        configure: impl FnOnce(&mut Config),
        clock: Option<Arc<AtomicU64>>,
    ) -> Self {
        let (redis, postgres) = tokio::join!(RedisServer::start(), postgres);
        let redis = redis.unwrap();
        let route = DatabaseRoute::to(&postgres).await;
        let mut config = Config::defaults();
        config.redis.url = redis.url();
        route.url().clone_into(&mut config.database.url);
        config.database.pooler = route.is_pooled();
        config.database.pooler_statements = route.keeps_statements();
        config.database.maintenance_url = postgres.url();
        config.schedules.clear();
        // With the shipped retry times, an order searches 120 times before it ends; `retry_as_shipped` restores them.
        // One search is due at the end of the order.
        config.dispatch.retry = [config.dispatch.retry.repeat(20), vec![secs(300)]].concat();
        configure(&mut config);

        let pool = db::connect_pool(&config.database).await.unwrap();
        let patient = RedisConfig { response_timeout: HINT_TIMEOUT, ..RedisConfig::new(&config.redis.url) };
        let mut store = Store::with_config(patient).unwrap();
        store.ping().await.unwrap();
        if let Some(clock) = &clock {
            store = store.with_clock(ScriptClock::Fixed(clock.clone()));
        }
        orders::service_types::publish(&pool, &config).await.unwrap();
        let app = App::new(config, pool, store).unwrap().with_core(|parts| set_core(parts, clock.as_ref()));
        rebuild_from_nothing(&app).await;
        Self { app, redis, postgres, _route: route, clock, takes: AtomicU64::new(0) }
    }

    /// Returns the application on the same servers and clock with another configuration, as after a restart with a
    /// changed file.
    pub fn reconfigured(&self, configure: impl FnOnce(&mut Config)) -> App {
        let mut config = (*self.app.config).clone();
        configure(&mut config);
        let app = App::new(config, self.app.core.db.clone(), self.app.core.store.clone()).unwrap();
        app.with_core(|parts| set_core(parts, self.clock.as_ref()))
    }

    pub fn now_ms(&self) -> u64 {
        self.clock.as_ref().expect("the clock is moved by hand").load(Ordering::SeqCst)
    }

    /// Moves the clocks of Redis and Postgres. No job runs, but missing days of the history are added.
    pub async fn advance(&self, by: Duration) {
        self.move_clock_to(self.now_ms() + u64::try_from(by.as_millis()).unwrap()).await;
    }

    pub async fn move_clock_to(&self, now_ms: u64) {
        assert!(now_ms >= self.now_ms(), "time does not run backwards");
        let new_day = now_ms / DAY_MS != self.now_ms() / DAY_MS;
        set_database_clock(&self.app.core.db, now_ms).await;
        if new_day {
            self.add_days().await;
        }
        self.clock.as_ref().unwrap().store(now_ms, Ordering::SeqCst);
    }

    /// Adds the missing days of the history by the clock of the database and returns their number. It connects to
    /// Postgres directly because it takes a session lock, which a pooler does not support.
    pub async fn add_days(&self) -> usize {
        let mut session = PgConnection::connect(&self.postgres.url()).await.unwrap();
        history_days::add_ahead(&mut session).await.unwrap()
    }

    /// Runs a Redis command directly, without the store.
    pub async fn redis<T: FromRedisValue>(&self, words: &[&str]) -> T {
        redis_command(&self.redis.url(), words).await
    }

    /// Kills Redis and starts it again. It first waits until Redis has written its append-only file: on a slow disk,
    /// Redis buffers answered writes for up to two seconds.
    pub async fn crash_redis(&mut self) {
        eventually("Redis has written its file", || async {
            self.redis::<String>(&["INFO", "persistence"]).await.contains("aof_buffer_length:0")
        })
        .await;
        self.redis.kill().await;
        self.redis.restart().await.unwrap();
    }

    /// Runs a statement of the test in a transaction without a statement timeout. The statement may change orders without
    /// a new version, so the kept orders are forgotten.
    pub async fn sql(&self, statement: &str) -> u64 {
        let mut tx = self.app.core.db.begin().await.unwrap();
        tx.lift_limit().await.unwrap();
        let done = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        self.app.orders.kept.forget_all();
        done.rows_affected()
    }

    /// Returns the single number that a query selects.
    pub async fn count(&self, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&self.app.core.db).await.unwrap()
    }

    /// Returns the texts that a query selects.
    pub async fn texts(&self, query: &str) -> Vec<String> {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_all(&self.app.core.db).await.unwrap()
    }

    /// Returns all stored data about orders as text, to show that nothing changed.
    pub async fn dump(&self) -> String {
        sqlx::query_scalar(
            "SELECT concat_ws(E'\\n',
                (SELECT string_agg(o::text, E'\\n' ORDER BY o.id) FROM orders o),
                (SELECT string_agg(f::text, E'\\n' ORDER BY f.id) FROM offers f),
                (SELECT string_agg(e::text, E'\\n' ORDER BY e.seq) FROM order_events e),
                (SELECT string_agg(m::text, E'\\n' ORDER BY m.id) FROM outbox m),
                (SELECT string_agg(a::text, E'\\n' ORDER BY a.outbox_id, a.attempt_no) FROM outbox_attempts a),
                (SELECT string_agg(l::text, E'\\n' ORDER BY l.id) FROM alerts l))",
        )
        .fetch_one(&self.app.core.db)
        .await
        .unwrap()
    }

    /// Returns the violations that the history checker finds, and those that only the proof finds.
    pub async fn violations(&self) -> Vec<String> {
        let mut found = audit::check_history(&self.app.maintenance).await.unwrap();
        let folded = slice::fold_history(&self.app.maintenance).await.unwrap();
        let is_new = |v: &InvariantViolation| {
            !found.iter().any(|known| (known.invariant, &known.subject) == (v.invariant, &v.subject))
        };
        let only_folded: Vec<_> = folded.into_iter().filter(is_new).collect();
        found.extend(only_folded);
        found.iter().map(ToString::to_string).collect()
    }

    /// Asserts that the history checker finds no violation.
    pub async fn assert_sound(&self) {
        assert_eq!(self.violations().await, Vec::<String>::new());
    }
}

/// Restores the shipped retry times, for tests of orders that search longer than five minutes.
pub fn retry_as_shipped(config: &mut Config) {
    config.dispatch.retry = Config::defaults().dispatch.retry;
}

/// Writes what the reconciler's first rebuild would leave: the epoch, limits and pauses in Redis, and its row in the
/// log. It skips the nine sources of timers, which are empty, because reading them twice slows each start.
async fn rebuild_from_nothing(app: &App) {
    let rebuild = Rebuild::begin(&app.maintenance).await.unwrap();
    assert!(rebuild.finish().await.unwrap(), "no other process rebuilds");
    repair::record_report(&app.core, rebuild.report()).await.unwrap();
}

/// Clock that a test moves by hand, in milliseconds since 1970.
#[derive(Debug)]
struct MovedClock(Arc<AtomicU64>);

impl Clock for MovedClock {
    fn now(&self) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Gives Redis time to answer on a busy machine, and moves this machine's clock with that of the test.
fn set_core(parts: &mut CoreParts, clock: Option<&Arc<AtomicU64>>) {
    parts.patience = HINT_TIMEOUT;
    if let Some(clock) = clock {
        parts.clock = Arc::new(MovedClock(clock.clone()));
        parts.database_clock = DatabaseClock::new(parts.clock.clone());
    }
}

/// Starts a Postgres with the schema of this build. The template is made again each day, because the schema creates the
/// days of the history from the current day.
pub async fn migrated_postgres() -> PostgresServer {
    copy_postgres("", async |_: &foundation::db::Pool| {}).await
}

/// Like [`migrated_postgres`], with the clock stopped at [`START_MS`] and the days of the history from there.
async fn stopped_postgres() -> PostgresServer {
    copy_postgres("-stopped", stop_clock).await
}

async fn stop_clock(pool: &foundation::db::Pool) {
    set_database_clock(pool, START_MS).await;
    history_days::add_ahead(&mut pool.acquire().await.unwrap().detach().unwrap()).await.unwrap();
}

/// Returns the folder of the filled clusters: `target/tmp`, because each test binary is in `target/debug/deps`.
fn templates() -> PathBuf {
    let binary = env::current_exe().unwrap();
    binary.ancestors().nth(3).expect("a test binary is in target/debug/deps").join("tmp")
}

/// The first test runs initdb, the migrations and `prepare`; the other tests copy the result.
async fn copy_postgres(kind: &str, prepare: impl AsyncFnOnce(&foundation::db::Pool)) -> PostgresServer {
    let name = format!("{}-{:016x}{kind}", Utc::now().date_naive(), db::schema_fingerprint());
    let fill = async |url: String| {
        let pool = db::connect_pool(&DatabaseConfig { url, ..Config::defaults().database }).await.unwrap();
        db::migrate_schema(&pool).await.unwrap();
        prepare(&pool).await;
        pool.close().await;
    };
    PostgresServer::start_copy(&templates(), &name, fill).await.unwrap()
}

/// Begins a transaction that may keep its locks without a time limit. The application's sessions have a limit.
pub async fn lasting_transaction(postgres: &PostgresServer) -> sqlx::Transaction<'static, sqlx::Postgres> {
    PgPool::connect(&postgres.url()).await.unwrap().begin().await.unwrap()
}

async fn set_database_clock(db: &foundation::db::Pool, now_ms: u64) {
    let function = format!(
        "CREATE OR REPLACE FUNCTION dispatchq_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
         AS $$ SELECT to_timestamp(0) + {now_ms} * interval '1 millisecond' $$"
    );
    sqlx::raw_sql(AssertSqlSafe(function)).execute(db).await.unwrap();
}

pub async fn redis_command<T: FromRedisValue>(url: &str, words: &[&str]) -> T {
    let client = redis::Client::open(url).unwrap();
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(HINT_TIMEOUT))
        .set_response_timeout(Some(HINT_TIMEOUT));
    let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
    let mut cmd = redis::cmd(words[0]);
    cmd.arg(&words[1..]);
    cmd.query_async(&mut connection).await.unwrap()
}
