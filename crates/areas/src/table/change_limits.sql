-- set limits
INSERT INTO area_limits (area_id, service_type, max_waiting_orders, dispatch_timeout_sec, order_lifetime_sec,
    retry_interval_sec, busy_retry_interval_sec, cooldown_period_sec, low_water_percentage, bypass_enabled,
    bypass_loyalty_levels, max_bypass_percentage, enabled, priority, version, schedule,
    waiting_timeout_sec, max_scheduled_per_hour, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, dispatchq_now())
ON CONFLICT (area_id, service_type) DO UPDATE SET max_waiting_orders = excluded.max_waiting_orders,
    dispatch_timeout_sec = excluded.dispatch_timeout_sec, order_lifetime_sec = excluded.order_lifetime_sec,
    retry_interval_sec = excluded.retry_interval_sec,
    busy_retry_interval_sec = excluded.busy_retry_interval_sec,
    cooldown_period_sec = excluded.cooldown_period_sec,
    low_water_percentage = excluded.low_water_percentage, bypass_enabled = excluded.bypass_enabled,
    bypass_loyalty_levels = excluded.bypass_loyalty_levels,
    max_bypass_percentage = excluded.max_bypass_percentage, enabled = excluded.enabled,
    priority = excluded.priority, version = excluded.version, schedule = excluded.schedule,
    waiting_timeout_sec = excluded.waiting_timeout_sec, max_scheduled_per_hour = excluded.max_scheduled_per_hour,
    updated_at = excluded.updated_at
