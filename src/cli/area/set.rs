//! `dispatchq area set`: how many orders may wait in an area, how long, and at which times.

use serde_json::{Value, json};

use super::area_path;
use crate::cli::{
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field},
    },
};
use areas::table::limit_field::{LimitField, UnknownLimit};
use model::input::parse_reason;
use model::{
    admission::schedule::ThresholdSchedule,
    ids::{AreaId, ServiceType},
};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct AreaSetArgs {
    area: AreaId,
    #[arg(long)]
    service_type: ServiceType,
    /// Maximum number of waiting orders
    #[arg(long)]
    max_waiting_orders: Option<i64>,
    /// Time after its creation in which an order counts as waiting
    #[arg(long)]
    waiting_timeout_sec: Option<i64>,
    /// Time that a driver has to answer an offer
    #[arg(long)]
    dispatch_timeout_sec: Option<i64>,
    /// Maximum time from an order's creation until a driver is assigned
    #[arg(long)]
    order_lifetime_sec: Option<i64>,
    /// Pause before the search for a driver restarts
    #[arg(long)]
    retry_interval_sec: Option<i64>,
    /// Pause before the search restarts while the area is full; also the Retry-After of refused requests
    #[arg(long)]
    busy_retry_interval_sec: Option<i64>,
    /// Minimum time that a full area stays busy
    #[arg(long)]
    cooldown_period_sec: Option<i64>,
    /// Percentage of the limit; a full area stays busy until fewer orders than this are waiting
    #[arg(long)]
    low_water_percentage: Option<i32>,
    #[arg(long)]
    bypass_enabled: Option<bool>,
    /// Loyalty levels that may exceed the threshold, such as ELITE,VOYAGER
    #[arg(long, value_delimiter = ',')]
    bypass_loyalty_levels: Option<Vec<String>>,
    #[arg(long)]
    max_bypass_percentage: Option<i32>,
    /// Maximum number of scheduled orders with a pickup in the same hour
    #[arg(long)]
    max_scheduled_per_hour: Option<i64>,
    /// Thresholds by weekday and time of day, such as "MON-FRI 07:00-09:30=60; 22:00-02:00=30"; "" removes them
    #[arg(long)]
    schedule: Option<ThresholdSchedule>,
    /// Priority of these limits where areas overlap; the highest applies, and if they are equal, the priority of the
    /// areas decides
    #[arg(long, allow_hyphen_values = true)]
    priority: Option<i32>,
    /// Limits to reset to the installation's values, such as max-waiting-orders,schedule; "all" for all
    #[arg(long, value_delimiter = ',', value_parser = parse_inherited)]
    inherit: Vec<Inherited>,
    /// Whether the area accepts orders of this service type
    #[arg(long)]
    enabled: Option<bool>,
    #[arg(long, value_parser = parse_reason)]
    reason: Option<String>,
    /// Change the limits only if they still have this version
    #[arg(long)]
    if_version: Option<i64>,
}

/// Limits that one value of `--inherit` names: one, or all.
#[derive(Debug, Clone)]
struct Inherited(Vec<LimitField>);

fn parse_inherited(name: &str) -> Result<Inherited, UnknownLimit> {
    match name {
        "all" => Ok(Inherited(LimitField::ALL.to_vec())),
        name => Ok(Inherited(vec![name.parse()?])),
    }
}

impl AreaSetArgs {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<()> {
        let mut change = json!({
            "max_waiting_orders": self.max_waiting_orders,
            "waiting_timeout_sec": self.waiting_timeout_sec,
            "dispatch_timeout_sec": self.dispatch_timeout_sec,
            "order_lifetime_sec": self.order_lifetime_sec,
            "retry_interval_sec": self.retry_interval_sec,
            "busy_retry_interval_sec": self.busy_retry_interval_sec,
            "cooldown_period_sec": self.cooldown_period_sec,
            "low_water_percentage": self.low_water_percentage,
            "bypass_enabled": self.bypass_enabled,
            "bypass_loyalty_levels": self.bypass_loyalty_levels,
            "max_bypass_percentage": self.max_bypass_percentage,
            "max_scheduled_per_hour": self.max_scheduled_per_hour,
            "schedule": self.schedule.as_ref().map(ThresholdSchedule::entries),
            "enabled": self.enabled,
            "priority": self.priority,
            "reason": self.reason,
        });
        // A null member resets the limit to the installation's value, so options that were not given must be absent.
        if let Some(members) = change.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        for field in self.inherit.into_iter().flat_map(|Inherited(fields)| fields) {
            change[field.as_str()] = Value::Null;
        }
        change["service_type"] = json!(self.service_type);
        let shown = api.get(&area_path(&self.area, &[]), &[]).await?;
        let of_type = |row: &&Value| row["service_type"] == json!(self.service_type);
        let before =
            list_items(&shown, "limits").iter().find(of_type).map_or(Value::from(0), |row| row["version"].clone());
        let row = api.put_version(&area_path(&self.area, &["threshold"]), &change, self.if_version).await?;
        let (area, service_type) = (show_field(&row, "area_id"), show_field(&row, "service_type"));
        print_set(&area, &service_type, &show_field(&row, "version"), row["version"] != before);
        Ok(())
    }
}

fn print_set(area: &str, service_type: &str, version: &str, has_changed: bool) {
    let line = if has_changed {
        format!("{area} {service_type} now has version {version}; it takes effect on all replicas within a second.")
    } else {
        format!("Nothing has changed: {area} {service_type} still has version {version}.")
    };
    output::print_escaped(&line);
}
