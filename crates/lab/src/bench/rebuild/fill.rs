//! Creates open orders directly in Postgres, and drivers.

use foundation::db::Pool;
use orders::fleet::drivers::{self, NewDriver};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

const SCRIPT: &str = include_str!("fill.sql");

/// Orders that fall due per second: as in a city with 140 running orders per second. With few orders, all fall due
/// within ten seconds.
const DUE_PER_S: u32 = 140;
const LEAST_SECS: u32 = 10;
/// Number of drivers. Each may have one offer at a time; the other orders keep searching.
const DRIVERS: u32 = 300;
const PICKUP: (f64, f64) = (-6.2, 106.8);

/// Creates orders and drivers. Every order has two timers: its first attempt, and a day later the end of its lifetime.
/// `verify` derives one from the other.
pub(super) async fn fill_orders(url: &str, app_db: &Pool, orders: u32) -> anyhow::Result<()> {
    let new_driver = |n: u32| NewDriver {
        id: format!("D{n}").as_str().into(),
        service_types: vec!["RIDE".into()],
        latitude: PICKUP.0,
        longitude: PICKUP.1,
        available: true,
        phone: None,
        name: None,
        skills: None,
    };
    drivers::import_drivers(app_db, &(0..DRIVERS).map(new_driver).collect::<Vec<_>>()).await?;
    let mut db = PgConnection::connect(url).await?;
    // The script keeps the rows consistent, so triggers are off.
    sqlx::raw_sql("SET session_replication_role = replica; SET synchronous_commit = off").execute(&mut db).await?;
    let spread_s = (orders / DUE_PER_S).max(LEAST_SECS);
    let script = SCRIPT.replace("{orders}", &orders.to_string()).replace("{spread_s}", &spread_s.to_string());
    sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut db).await?;
    sqlx::raw_sql("VACUUM ANALYZE orders").execute(&mut db).await?;
    db.close().await?;
    Ok(())
}
