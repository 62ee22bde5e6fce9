//! Metrics and the rules and dashboards that live by them.
//!
//! * `exposed`: what real processes show after orders of each kind, to the letter of docs/METRICS.md and in every panel.
//! * `scraped`: gauges that are read at each scrape, also while a server is away.
//! * `rules`: alert rules, by `promtool`; dashboard and runbook fit them.

mod exposed;
mod rules;
mod scraped;
