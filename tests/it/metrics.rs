//! Metrics and the rules and dashboards that live by them.
//!
//! * `exposed`: what real processes show after orders of each kind, to the letter of docs/METRICS.md and in every panel.
//! * `rules`: alert rules, by `promtool`; dashboard and runbook fit them.

mod exposed;
mod rules;
