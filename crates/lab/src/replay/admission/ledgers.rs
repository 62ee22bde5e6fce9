//! Counts of each source, and their differences. Pure.

use std::collections::BTreeSet;

use crate::testbed::place_log::{PlaceCounts, PlaceLine};

/// Counts of one source.
#[derive(Debug)]
pub(super) struct PlaceLedger {
    pub(super) by: &'static str,
    pub(super) knows: &'static [PlaceLine],
    /// Whether the source also counts requests outside all areas.
    pub(super) knows_outside: bool,
    pub(super) counts: PlaceCounts,
}

impl PlaceLedger {
    /// Returns the counts of the client. Answers to checks do not say whether shadow mode admitted the request.
    pub(super) fn of_client(counts: PlaceCounts) -> Self {
        const KNOWS: &[PlaceLine] = &[
            PlaceLine::ChecksRefused,
            PlaceLine::CreationsRefused,
            PlaceLine::ChecksBypassed,
            PlaceLine::CreationsBypassed,
            PlaceLine::CreationsInShadow,
            PlaceLine::ServerBusy,
            PlaceLine::Checks,
            PlaceLine::WaitingMet,
            PlaceLine::MostWaiting,
        ];
        Self { by: "client", knows: KNOWS, knows_outside: true, counts }
    }

    fn knows(&self, area: &str, line: PlaceLine) -> bool {
        self.knows.contains(&line) && (self.knows_outside || !area.is_empty())
    }
}

/// Returns a line for each count on which the sources that know it differ.
pub(super) fn find_differences(ledgers: &[PlaceLedger]) -> Vec<String> {
    let areas: BTreeSet<&str> = ledgers.iter().flat_map(|ledger| ledger.counts.areas()).collect();
    let lines: BTreeSet<PlaceLine> = ledgers.iter().flat_map(|ledger| ledger.knows).copied().collect();
    let mut differences = Vec::new();
    for area in areas {
        for line in &lines {
            let said: Vec<(&str, i64)> = ledgers
                .iter()
                .filter(|ledger| ledger.knows(area, *line))
                .map(|ledger| (ledger.by, ledger.counts.get(area, *line)))
                .collect();
            if said.windows(2).any(|pair| pair[0].1 != pair[1].1) {
                let said: Vec<_> = said.iter().map(|(by, count)| format!("{by} {count}")).collect();
                differences.push(format!("admission_counts_agree: area '{area}', {line:?}: {}", said.join(", ")));
            }
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(by: &'static str, knows: &'static [PlaceLine], area: &str, refused: i64) -> PlaceLedger {
        let mut counts = PlaceCounts::default();
        counts.add(area, PlaceLine::ChecksRefused, refused);
        PlaceLedger { by, knows, knows_outside: by != "snapshots", counts }
    }

    #[test]
    fn difference_of_one_names_all_sources() {
        const KNOWS: &[PlaceLine] = &[PlaceLine::ChecksRefused];
        let three = |refused: i64| {
            find_differences(&[
                ledger("client", KNOWS, "A", 3),
                ledger("counts", KNOWS, "A", 3),
                ledger("metrics", KNOWS, "A", refused),
            ])
        };
        assert_eq!(three(3), Vec::<String>::new());
        assert_eq!(three(2), ["admission_counts_agree: area 'A', ChecksRefused: client 3, counts 3, metrics 2"]);
        assert_eq!(three(0).len(), 1, "what is left out is 0");
    }
}
