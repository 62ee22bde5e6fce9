//! Checks for errors that no fault excuses: a lost order, a doubled attempt, an attempt that ended early.

use foundation::db::Pool;

const VERDICT: &str = include_str!("verdict.sql");
/// Maximum number of findings of each kind that are listed.
const SOME: usize = 5;

/// Counts of findings. `found` lists some of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RunVerdict {
    /// Orders that were confirmed to a client but do not exist, and orders that did not end.
    pub(super) lost: usize,
    /// Attempts that started twice, and requests with two orders.
    pub(super) doubled: usize,
    /// Attempts and lifetimes that ended early.
    pub(super) early: usize,
    pub(super) found: Vec<String>,
}

/// Judges a run at rest. `created` are the orders confirmed to clients.
pub(super) async fn judge_run(db: &Pool, created: &[String]) -> Result<RunVerdict, sqlx::Error> {
    let found: Vec<(String, String)> = sqlx::query_as(VERDICT).bind(created).fetch_all(db).await?;
    let count = |what: &str| found.iter().filter(|(of, _)| of == what).count();
    let (lost, doubled, early) = (count("lost"), count("doubled"), count("early"));
    let mut named = Vec::new();
    for what in ["lost", "doubled", "early"] {
        let subjects = found.iter().filter(|(of, _)| of == what);
        named.extend(subjects.take(SOME).map(|(_, subject)| format!("{what}: {subject}")));
    }
    Ok(RunVerdict { lost, doubled, early, found: named })
}

#[cfg(test)]
mod tests {
    use foundation::{config::database::DatabaseConfig, db};
    use settings::Config;
    use sqlx::{Connection, PgConnection};

    use super::*;
    use crate::testbed::start_private_postgres;

    // All rows have the times of one transaction: an order that ended correctly, and one for each kind of error.
    const ROWS: &str = include_str!("verdict_rows.sql");

    #[tokio::test]
    async fn each_cluster_fault_is_found() {
        let postgres = start_private_postgres().await.unwrap();
        let config = DatabaseConfig { url: postgres.url(), ..Config::defaults().database };
        let pool = db::connect_pool(&config).await.unwrap();
        db::migrate_schema(&pool).await.unwrap();
        let mut session = PgConnection::connect(&postgres.url()).await.unwrap();
        sqlx::raw_sql(ROWS).execute(&mut session).await.unwrap();
        let told = ["GOOD", "OPEN", "NEVER"].map(str::to_owned);
        let mut verdict = judge_run(&pool, &told).await.unwrap();
        verdict.found.sort_unstable();
        let found = [
            "doubled: attempt 1 of TWICE",
            "doubled: the request key-3",
            "early: attempt 1 of HASTY",
            "early: the lifetime of SOON",
            "lost: NEVER is missing",
            "lost: OPEN is DISPATCHING",
        ];
        assert_eq!(verdict.found, found);
        assert_eq!((verdict.lost, verdict.doubled, verdict.early), (2, 2, 2));
    }
}
