//! The report for people: a table.

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_BORDERS_ONLY};

use super::{
    super::options::RoundSizes,
    QueueReport,
    figures::{ReportFigure, format_figure},
};

impl QueueReport {
    /// The table, with what it comes from above it.
    pub(in crate::bench) fn to_text(&self) -> String {
        let RoundSizes { throughput_jobs, pending, due_per_s, herd_jobs, .. } = self.sizes;
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.set_header(["figure", "goal", "median", "min", "max", ""].map(|name| match name {
            "figure" => Cell::new(name),
            name => right(name.to_owned()),
        }));
        for ReportFigure { text, goal, spread, .. } in self.list_figures() {
            let verdict = if goal.is_met(spread.median) { "" } else { "missed" };
            table.add_row([
                Cell::new(text),
                right(goal.to_text()),
                right(format_figure(spread.median)),
                right(format_figure(spread.min)),
                right(format_figure(spread.max)),
                Cell::new(verdict),
            ]);
        }
        let mut lines = vec![
            self.machine.to_text(),
            self.versions.to_text(),
            format!(
                "{} rounds of: {throughput_jobs} jobs; {pending} timers pending and {due_per_s} due per second; a herd of \
                 {herd_jobs}",
                self.throughput.len()
            ),
            table.to_string(),
        ];
        for (name, peer) in &self.peers {
            lines.push(format!("{name} {}: {}", peer.version, peer.settings));
            lines.extend(peer.lateness.as_ref().map(|late| {
                format!(
                    "{name} lateness with {} pending and {} due per second: p50 {} ms, p99 {} ms, max {} ms",
                    late.pending,
                    late.due_per_s,
                    format_figure(late.p50),
                    format_figure(late.p99),
                    format_figure(late.max)
                )
            }));
        }
        if !self.keeps_promises() {
            lines.push("A promise is broken: jobs were lost, run twice or run early.".to_owned());
        }
        lines.join("\n")
    }
}
