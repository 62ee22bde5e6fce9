//! `dispatchq area show`: prints one area from an answer of the API.

use serde_json::Value;

use crate::cli::{
    output,
    remote::fields::{list_items, show_field},
};
use model::admission::schedule::ThresholdSchedule;

const HEADINGS: [&str; 9] =
    ["SERVICE", "WAITING", "THRESHOLD", "MODE", "LIFETIME", "COOLDOWN", "BYPASS", "PRIORITY", "TIME ZONE"];

/// Describes the mode in effect. A person's override applies whatever the flag is. Without an override, the flag
/// decides how the threshold is enforced.
pub(super) fn describe_mode(mode: &str, enforcement: &str) -> String {
    match mode {
        "AUTO" => format!("AUTO, threshold {enforcement}"),
        decided => decided.to_owned(),
    }
}

/// Prints an area: the limits set for each service type, and the values in effect.
pub(super) fn print_area(area: &Value, limits: &[Value], status: &[Value]) {
    let services = list_items(area, "service_type");
    let services = if services.is_empty() { "all".to_owned() } else { show_field(area, "service_type") };
    output::print_escaped(&format!(
        "{} {}, priority {}, service types {services}",
        show_field(area, "id"),
        show_field(area, "name"),
        show_field(area, "priority")
    ));
    let rows = status.iter().map(|row| {
        let own = limits.iter().find(|own| own["service_type"] == row["service_type"]);
        let inherited = |name: &str| if own.is_some_and(|own| !own[name].is_null()) { "" } else { " (inherited)" };
        let holds = &row["effective"];
        let origin = if holds["scheduled"] == true { " (schedule)" } else { inherited("max_waiting_orders") };
        let seconds = |name: &str| format!("{}s{}", show_field(holds, name), inherited(name));
        [
            show_field(row, "service_type"),
            show_field(row, "waiting"),
            format!("{}{origin}", show_field(row, "threshold")),
            describe_mode(&show_field(row, "mode"), &show_field(row, "enforcement")),
            seconds("order_lifetime_sec"),
            seconds("cooldown_period_sec"),
            if holds["bypass_enabled"] == true {
                format!("{} %", show_field(holds, "max_bypass_percentage"))
            } else {
                "none".to_owned()
            },
            show_field(holds, "priority"),
            show_field(holds, "time_zone"),
        ]
    });
    output::print_rows(&HEADINGS, rows, "The area serves no configured service type.");
    for own in limits {
        let entries = serde_json::from_value(own["schedule"].clone()).ok();
        if let Some(schedule) = entries.and_then(|entries| ThresholdSchedule::new(entries).ok()) {
            output::print_escaped(&format!("{} by schedule: {schedule}", show_field(own, "service_type")));
        }
    }
}
