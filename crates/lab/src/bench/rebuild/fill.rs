//! Open orders, made in Postgres itself, and drivers.

use dispatch::fleet::drivers::{self, NewDriver};
use foundation::db::Pool;
use sqlx::{Connection, PgConnection};

/// Orders that fall due each second: as in a city of 140 orders a second whose attempts run. Of few orders, all fall due within ten
/// seconds.
const DUE_PER_S: u32 = 140;
const LEAST_SECS: u32 = 10;
/// Each of them may have one offer at a time; the others search on.
const DRIVERS: u32 = 300;
const PICKUP: (f64, f64) = (-6.2, 106.8);

/// Every order has two timers: its first attempt, and a day later the end of its lifetime. `verify` reads the one off the other.
pub(super) async fn fill_orders(url: &str, app_db: &Pool, orders: u32) -> anyhow::Result<()> {
    let new_driver = |n: u32| NewDriver {
        id: format!("D{n}").as_str().into(),
        service_types: vec!["RIDE".into()],
        latitude: PICKUP.0,
        longitude: PICKUP.1,
        available: true,
        phone: None,
    };
    drivers::import_drivers(app_db, &(0..DRIVERS).map(new_driver).collect::<Vec<_>>()).await?;
    let mut db = PgConnection::connect(url).await?;
    // Rows fit each other by the way they are made: no trigger has to look.
    sqlx::raw_sql("SET session_replication_role = replica; SET synchronous_commit = off").execute(&mut db).await?;
    let spread_s = (orders / DUE_PER_S).max(LEAST_SECS);
    let mut tx = db.begin().await?;
    sqlx::query(ORDERS).bind(i64::from(orders)).bind(f64::from(spread_s)).execute(&mut *tx).await?;
    sqlx::query(EVENTS).execute(&mut *tx).await?;
    tx.commit().await?;
    sqlx::raw_sql("VACUUM ANALYZE orders").execute(&mut db).await?;
    db.close().await?;
    Ok(())
}

// $1 orders, the first attempts of which fall due within $2 seconds.
const ORDERS: &str = "-- bench: open orders
    INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, payment_status, status, next_attempt_at, lifetime_deadline,
                        created_at, updated_at)
    SELECT 'R' || lpad(n::text, 9, '0'), 'RIDE', -6.2, 106.8, 'UNPAID', 'DISPATCHING', due, due + interval '1 day', at, at
    FROM (SELECT n, at, date_trunc('milliseconds', at + n * $2::float8 / $1::bigint * interval '1 second') AS due
          FROM (SELECT dispatchq_now() AS at) t, generate_series(1, $1::bigint) n OFFSET 0) x";
const EVENTS: &str = "-- bench: events of open orders
    INSERT INTO order_events (order_id, to_status, reason, actor, at)
    SELECT id, status, 'ORDER_CREATED', 'sql', created_at FROM orders WHERE closed_at IS NULL";
