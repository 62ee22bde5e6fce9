//! dispatchq on its own Redis and Postgres, with a clock moved by hand.

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

use chrono::Utc;
use redis::{AsyncConnectionConfig, FromRedisValue};
use servers::{PostgresServer, RedisServer};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

use crate::{eventually, route::DatabaseRoute, secs};
use app::App;
use foundation::{
    config::database::DatabaseConfig,
    db::{self, history_days},
};
use maintenance::{
    audit,
    recovery::{rebuild::Rebuild, repair},
};
use queue::{RedisConfig, ScriptClock, Store};
use settings::Config;

/// 2030-01-01 08:00:00 UTC: where moved time begins.
const START_MS: u64 = 1_893_484_800_000;
const DAY_MS: u64 = 24 * 3_600_000;

/// Tests look for what Redis answers, however busy the machine is.
const HINT_TIMEOUT: Duration = Duration::from_secs(30);

/// The application, its servers and its clock. Dropping it ends the servers.
#[derive(Debug)]
pub struct TestApp {
    pub app: App,
    pub redis: RedisServer,
    pub postgres: PostgresServer,
    /// Kept for as long as the application is used.
    _route: DatabaseRoute,
    /// `None`: time is real.
    clock: Option<Arc<AtomicU64>>,
    pub(crate) takes: AtomicU64,
}

impl TestApp {
    /// Time stands still, and the configuration is the shipped one, but for periodic work and for retries after five minutes,
    /// which come every five minutes.
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// As [`start`](Self::start), with the configuration changed first.
    pub async fn with(configure: impl FnOnce(&mut Config)) -> Self {
        Self::build(stopped_postgres(), configure, Some(Arc::new(AtomicU64::new(START_MS)))).await
    }

    /// As [`start`](Self::start), with the rows that these statements write. One test of a day performs them, and the others copy what it
    /// made.
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

    /// On real time, for tests in which real moments race.
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
        config.database.maintenance_url = postgres.url();
        config.schedules.clear();
        // An order that finds no driver would try 120 times before it ends; `retry_as_shipped` lets it. One is due at its end.
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
        let app = App::new(config, pool, store).unwrap().with_core(|parts| parts.patience = HINT_TIMEOUT);
        rebuild_from_nothing(&app).await;
        Self { app, redis, postgres, _route: route, clock, takes: AtomicU64::new(0) }
    }

    /// The same servers and clock under another configuration, as after a restart with a changed file.
    pub fn reconfigured(&self, configure: impl FnOnce(&mut Config)) -> App {
        let mut config = (*self.app.config).clone();
        configure(&mut config);
        let app = App::new(config, self.app.core.db.clone(), self.app.core.store.clone()).unwrap();
        app.with_core(|parts| parts.patience = HINT_TIMEOUT)
    }

    pub fn now_ms(&self) -> u64 {
        self.clock.as_ref().expect("the clock is moved by hand").load(Ordering::SeqCst)
    }

    /// Moves the clock of both servers. Nothing runs by itself, but days of the history are ready as ever.
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

    /// Adds the days of the history that are missing, by the clock of the database, and returns how many. Its lock is one of a session,
    /// so it goes past a pooler.
    pub async fn add_days(&self) -> usize {
        let mut session = PgConnection::connect(&self.postgres.url()).await.unwrap();
        history_days::add_ahead(&mut session).await.unwrap()
    }

    /// A plain Redis command, for looking and breaking things behind the store's back.
    pub async fn redis<T: FromRedisValue>(&self, words: &[&str]) -> T {
        redis_command(&self.redis.url(), words).await
    }

    /// Ends Redis like a crash and starts it again. What it answered is in its file by then: while a slow disk takes that in,
    /// Redis keeps what comes to itself for up to two seconds.
    pub async fn crash_redis(&mut self) {
        eventually("Redis has written its file", || async {
            self.redis::<String>(&["INFO", "persistence"]).await.contains("aof_buffer_length:0")
        })
        .await;
        self.redis.kill().await;
        self.redis.restart().await.unwrap();
    }

    /// A statement that is no part of the application, in a transaction. It takes as long as it takes.
    pub async fn sql(&self, statement: &str) -> u64 {
        let mut tx = self.app.core.db.begin().await.unwrap();
        tx.lift_limit().await.unwrap();
        let done = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        done.rows_affected()
    }

    /// The one number a query answers.
    pub async fn count(&self, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&self.app.core.db).await.unwrap()
    }

    /// The texts a query answers.
    pub async fn texts(&self, query: &str) -> Vec<String> {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_all(&self.app.core.db).await.unwrap()
    }

    /// Everything the application keeps about orders, as text: to show that nothing changed.
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

    /// What the checker has to say.
    pub async fn violations(&self) -> Vec<String> {
        audit::check_history(&self.app.maintenance).await.unwrap().iter().map(ToString::to_string).collect()
    }

    /// No invariant is broken.
    pub async fn assert_sound(&self) {
        assert_eq!(self.violations().await, Vec::<String>::new());
    }
}

/// For tests of orders that go on to try after their first five minutes.
pub fn retry_as_shipped(config: &mut Config) {
    config.dispatch.retry = Config::defaults().dispatch.retry;
}

/// Leaves behind what the reconciler's first look would: the epoch, limits and pauses in Redis, and its row in the log. It does not read
/// the nine sources of timers, which are empty, twice, by statements that are new to their connections.
async fn rebuild_from_nothing(app: &App) {
    let rebuild = Rebuild::begin(&app.maintenance).await.unwrap();
    assert!(rebuild.finish().await.unwrap(), "no other process rebuilds");
    repair::record_report(&app.core, rebuild.report()).await.unwrap();
}

/// A Postgres with the schema of this build. Of one day: the schema begins with the days of the history from the day it was made.
pub async fn migrated_postgres() -> PostgresServer {
    copy_postgres("", async |_: &foundation::db::Pool| {}).await
}

/// As [`migrated_postgres`], its clock stopped at [`START_MS`], with the days of the history from there.
async fn stopped_postgres() -> PostgresServer {
    copy_postgres("-stopped", stop_clock).await
}

async fn stop_clock(pool: &foundation::db::Pool) {
    set_database_clock(pool, START_MS).await;
    history_days::add_ahead(&mut pool.acquire().await.unwrap().detach().unwrap()).await.unwrap();
}

/// Returns the folder of the filled clusters: target/tmp, next to target/debug/deps where each test binary is.
fn templates() -> PathBuf {
    let binary = env::current_exe().unwrap();
    binary.ancestors().nth(3).expect("a test binary is in target/debug/deps").join("tmp")
}

/// One test runs initdb, the migrations and `prepare`; the others copy what it made.
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

/// A transaction that may hold its locks for as long as a test wants. Sessions of the application may not.
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
