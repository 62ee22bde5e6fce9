//! Copies the configured service types to Postgres, for orders that are created in SQL.

use foundation::db::Pool;
use settings::Config;

/// Writes the configured service types, with their lifetimes and partners, to the table that `dispatchq_create_order()`
/// reads.
pub async fn publish(db: &Pool, config: &Config) -> Result<(), sqlx::Error> {
    for service_type in config.service_types.keys() {
        let lifetime_ms = config.policy_for_type(service_type).lifetime.as_secs_f64() * 1000.0;
        sqlx::query(
            "-- publish service type
             INSERT INTO service_types (service_type, lifetime, partner)
             VALUES ($1, $2 * interval '1 millisecond', $3)
             ON CONFLICT (service_type) DO UPDATE
                SET lifetime = excluded.lifetime, partner = excluded.partner, updated_at = dispatchq_now()
             WHERE (service_types.lifetime, service_types.partner)
                   IS DISTINCT FROM (excluded.lifetime, excluded.partner)",
        )
        .bind(service_type)
        .bind(lifetime_ms)
        .bind(config.partner_of(service_type))
        .execute(db)
        .await?;
    }
    Ok(())
}
