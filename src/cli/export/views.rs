//! The exported views. docs/DATA.md lists them with their columns.

/// View, and the column that selects the day of its rows. The column is set when a row is inserted and does not change,
/// so each row belongs to exactly one day.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) name: &'static str,
    pub(super) day_column: &'static str,
}

const fn view(name: &'static str, day_column: &'static str) -> View {
    View { name, day_column }
}

pub(super) const VIEWS: [View; 18] = [
    view("audit_orders", "created_at"),
    view("audit_events", "at"),
    view("audit_event_keys", "at"),
    view("audit_offers", "offered_at"),
    view("audit_bookings", "created_at"),
    view("audit_admissions", "hour"),
    view("audit_shadow_refusals", "at"),
    view("audit_supply", "minute"),
    view("audit_notifications", "created_at"),
    view("audit_binding_notifications", "created_at"),
    view("audit_bindings", "created_at"),
    view("audit_transactions", "started_at"),
    view("audit_provider_calls", "at"),
    view("audit_binding_events", "at"),
    view("audit_plans", "created_at"),
    view("audit_proof_violations", "found_at"),
    view("audit_staff_actions", "at"),
    view("audit_staff_requests", "at"),
];
