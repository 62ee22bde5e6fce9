//! Plan of migrations, joins and leaves. Pure.

/// One of the two binaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunningVersion {
    Old,
    New,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpgradeStep {
    /// This version runs `migrate`.
    Migrate(RunningVersion),
    /// Processes of this version start, and take requests and jobs when they are ready.
    Join(RunningVersion),
    /// Processes of this version stop gracefully, one after another.
    Leave(RunningVersion),
}

/// Steps, and the time after them.
#[derive(Debug, Clone, Copy)]
pub(super) struct UpgradePhase {
    pub(super) name: &'static str,
    pub(super) steps: &'static [UpgradeStep],
}

use RunningVersion::{New, Old};
use UpgradeStep::{Join, Leave, Migrate};

/// Phases of a run. The first has processes of the old version on its own schema.
pub(super) const PHASES: [UpgradePhase; 8] = [
    UpgradePhase { name: "old", steps: &[] },
    UpgradePhase { name: "migrated", steps: &[Migrate(New)] },
    UpgradePhase { name: "side_by_side", steps: &[Join(New)] },
    UpgradePhase { name: "upgraded", steps: &[Leave(Old)] },
    UpgradePhase { name: "rolling_back", steps: &[Migrate(Old), Join(Old)] },
    UpgradePhase { name: "rolled_back", steps: &[Leave(New)] },
    UpgradePhase { name: "side_by_side_again", steps: &[Migrate(New), Join(New)] },
    UpgradePhase { name: "upgraded_again", steps: &[Leave(Old)] },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_join_only_after_their_migration() {
        let (mut running, mut migrated, mut together) = (vec![Old], vec![Old], 0);
        for step in PHASES.iter().flat_map(|phase| phase.steps) {
            match step {
                Migrate(version) => migrated.push(*version),
                Join(version) => {
                    assert!(migrated.contains(version) && !running.contains(version), "{version:?}");
                    running.push(*version);
                    together += 1;
                }
                Leave(version) => {
                    assert!(running.contains(version), "{version:?}");
                    running.retain(|other| other != version);
                }
            }
            assert!(!running.is_empty(), "{step:?}");
        }
        assert_eq!((running, together), (vec![New], 3));
    }
}
