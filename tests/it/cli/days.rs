//! `dispatchq migrate --partitions` creates the daily partitions of the history.

use crate::support::Fleet;
use settings::Config;

// Fault F4
#[tokio::test]
async fn command_keeps_days_without_maintenance_login() {
    let fleet = Fleet::start().await;
    assert_eq!(fleet.app.config.database.maintenance_url, "");
    sqlx::query("DO $$ BEGIN EXECUTE 'DROP TABLE order_events_' || to_char(now() AT TIME ZONE 'UTC' + interval '9 days', 'YYYYMMDD'); END $$")
        .execute(&fleet.app.core.db)
        .await
        .unwrap();
    let printed = fleet.run(&["migrate", "--partitions"]);
    assert_eq!((printed.code, printed.stdout.as_str()), (Some(0), "1 days of the history added, 0 dropped.\n"));
    assert_eq!(Config::defaults().database.maintenance_url, "");
}
