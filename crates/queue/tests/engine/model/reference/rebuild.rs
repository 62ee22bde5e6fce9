//! A rebuild, and the jobs that may be taken during it.

use super::{Reference, Wanted};
use queue::store::{RebuildMarker, RepairVerdict, Takeable};

impl Reference {
    pub(in crate::model) fn begin_rebuild(&mut self, marker: RebuildMarker) {
        self.rebuilding = Some((marker, None));
    }

    fn is_rebuilt_by(&self, marker: &RebuildMarker) -> bool {
        self.rebuilding.as_ref().is_some_and(|(present, _)| present == marker)
    }

    pub(in crate::model) fn rebuild_jobs(
        &mut self,
        marker: &RebuildMarker,
        wanted: &[Wanted],
        dues: &[u64],
    ) -> Option<Vec<RepairVerdict>> {
        self.is_rebuilt_by(marker).then(|| self.repair_at(wanted, dues))
    }

    pub(in crate::model) fn publish_horizon(&mut self, marker: &RebuildMarker, horizon: u64) -> bool {
        let stands = self.is_rebuilt_by(marker);
        if stands {
            self.rebuilding = Some((marker.clone(), Some(horizon)));
        }
        stands
    }

    /// Finishes the rebuild on the running server.
    pub(in crate::model) fn finish_rebuild(&mut self, marker: &RebuildMarker) -> bool {
        let stands = self.is_rebuilt_by(marker);
        if stands {
            self.rebuilding = None;
            (self.epoch, self.open) = (true, true);
            self.set_limits(None, &[]);
        }
        stands
    }

    pub(in crate::model) fn takeable(&self) -> Takeable {
        Takeable::decide(self.epoch, self.rebuilding.as_ref().and_then(|(_, horizon)| *horizon))
    }
}
