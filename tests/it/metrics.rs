//! Metrics, and the rules and dashboards that use them.
//!
//! * `exposed`: metrics of real processes after orders of each kind, compared with docs/METRICS.md and every panel.
//! * `rules`: alert rules, checked by `promtool`, and their agreement with dashboard and runbook.

mod exposed;
mod rules;
