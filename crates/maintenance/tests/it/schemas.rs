//! Two installations in two schemas of one database.

use foundation::{
    config::database::DatabaseConfig,
    db::{self, Pool, lock},
    error::ServiceError,
};
use settings::Config;
use test_support::TestApp;

/// Creates an installation in its own schema.
async fn install(t: &TestApp, schema: &str) -> Pool {
    t.sql(&format!("CREATE SCHEMA {schema}")).await;
    let url = format!("{}?options=-csearch_path%3D{schema}", t.postgres.url());
    let pool = db::connect_pool(&DatabaseConfig { url, ..Config::defaults().database }).await.unwrap();
    db::migrate_schema(&pool).await.unwrap();
    pool
}

/// Returns whether `inner` runs during a round of `outer` with the same lock number.
async fn runs_within(outer: &Pool, inner: &Pool) -> bool {
    let round = lock::run_under_lock(outer, 7, async {
        let other = lock::run_under_lock(inner, 7, async { Ok::<_, ServiceError>(()) }).await?;
        Ok(other.is_some())
    });
    round.await.unwrap().expect("the outer lock is free")
}

// Rule F17: Two installations in two schemas of one database do not make each other skip a reconciler pass.
#[tokio::test]
async fn installations_of_two_schemas_lock_apart() {
    let t = TestApp::start().await;
    let (first, second) = (install(&t, "first").await, install(&t, "second").await);
    let of_public = &t.app.core.upkeep;
    for (outer, inner, runs) in [
        (&first, &second, true),
        (&first, of_public, true),
        (of_public, &second, true),
        (&first, &first, false),
        (of_public, of_public, false),
    ] {
        assert_eq!(runs_within(outer, inner).await, runs);
    }
    // In `public` the lock id equals its number.
    assert_eq!(t.count("SELECT dispatchq_lock(7::bigint)").await, 7);
    // Locks of a driver and of an area also differ.
    let of =
        async |pool: &Pool, query: &'static str| sqlx::query_scalar::<_, i64>(query).fetch_one(pool).await.unwrap();
    let halves = "SELECT dispatchq_lock(7)::bigint";
    assert_ne!(of(&first, halves).await, of(&second, halves).await);
    let mut held = first.begin().await.unwrap();
    sqlx::query("SELECT dispatchq_take_place('O', 'A', 'RIDE', 1)").execute(&mut *held).await.unwrap();
    let free = "SELECT pg_try_advisory_xact_lock(dispatchq_lock(hashtextextended('waiting:A:RIDE', 0)))::int::bigint";
    assert_eq!((of(&first, free).await, of(&second, free).await), (0, 1));
}

// Rule F17: Every table has a primary key.
#[tokio::test]
async fn every_table_has_a_primary_key() {
    let t = TestApp::start().await;
    let without = t
        .texts(
            "SELECT c.relname::text FROM pg_class c
             WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
               AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)",
        )
        .await;
    assert_eq!(without, Vec::<String>::new());
}
