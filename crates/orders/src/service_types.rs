//! Copies the configured service types to Postgres, for orders that are created in SQL.

use foundation::db::Pool;
use settings::Config;

/// Writes the configured service types, with their lifetimes and partners, to the table that `dispatchq_create_order()`
/// reads.
pub async fn publish(db: &Pool, config: &Config) -> Result<(), sqlx::Error> {
    for service_type in config.service_types.keys() {
        let schedule = config.schedule_policy(service_type);
        let as_ms = |time: std::time::Duration| time.as_secs_f64() * 1000.0;
        sqlx::query(
            "-- publish service type
             INSERT INTO service_types AS s (service_type, lifetime, partner, lead, warn_before, max_days_ahead)
             VALUES ($1, $2 * interval '1 millisecond', $3, $4 * interval '1 millisecond',
                     $5 * interval '1 millisecond', $6)
             ON CONFLICT (service_type) DO UPDATE
                SET lifetime = excluded.lifetime, partner = excluded.partner, lead = excluded.lead,
                    warn_before = excluded.warn_before, max_days_ahead = excluded.max_days_ahead,
                    updated_at = dispatchq_now()
             WHERE (s.lifetime, s.partner, s.lead, s.warn_before, s.max_days_ahead) IS DISTINCT FROM
                   (excluded.lifetime, excluded.partner, excluded.lead, excluded.warn_before, excluded.max_days_ahead)",
        )
        .bind(service_type)
        .bind(as_ms(config.policy_for_type(service_type).lifetime))
        .bind(config.partner_of(service_type))
        .bind(as_ms(schedule.lead))
        .bind(as_ms(schedule.warn_before))
        .bind(i32::from(schedule.max_days_ahead))
        .execute(db)
        .await?;
    }
    Ok(())
}
