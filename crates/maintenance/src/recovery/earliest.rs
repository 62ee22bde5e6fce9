//! Selects the earliest of many timers in bounded memory, because all open orders may have millions of timers.

use queue::{JobId, store::DueJob};

/// Position by due time and then by id. An id of `None` is before all timers with this due time.
pub(super) type TimerPlace = (u64, Option<JobId>);

/// Keeps the earliest timers after a position.
#[derive(Debug)]
pub(super) struct EarliestTimers {
    after: TimerPlace,
    /// Minimum number of timers that are kept; up to twice as many are held.
    most: usize,
    held: Vec<DueJob>,
    /// Last kept timer after the latest drop of later timers.
    last_kept: Option<TimerPlace>,
}

impl EarliestTimers {
    /// Creates an empty selection. A `most` below 1 counts as 1.
    pub(super) fn after(place: TimerPlace, most: usize) -> Self {
        Self { after: place, most: most.max(1), held: Vec::new(), last_kept: None }
    }

    pub(super) fn push(&mut self, job: DueJob) {
        let place = place_of(&job);
        let is_too_late = self.last_kept.as_ref().is_some_and(|last| place > borrowed(last));
        if place <= borrowed(&self.after) || is_too_late {
            return;
        }
        self.held.push(job);
        if self.held.len() >= 2 * self.most {
            self.drop_later_half();
        }
    }

    fn drop_later_half(&mut self) {
        let (_, last, _) = self.held.select_nth_unstable_by(self.most - 1, |a, b| place_of(a).cmp(&place_of(b)));
        self.last_kept = Some((last.due_ms, Some(last.job.id.clone())));
        self.held.truncate(self.most);
    }

    /// Returns the timers by due time, and whether no others were dropped.
    pub(super) fn into_sorted(mut self) -> (Vec<DueJob>, bool) {
        self.held.sort_unstable_by(|a, b| place_of(a).cmp(&place_of(b)));
        (self.held, self.last_kept.is_none())
    }
}

fn place_of(job: &DueJob) -> (u64, Option<&JobId>) {
    (job.due_ms, Some(&job.job.id))
}

fn borrowed((due_ms, id): &TimerPlace) -> (u64, Option<&JobId>) {
    (*due_ms, id.as_ref())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use queue::NewJob;

    use super::*;

    fn timer(number: u64, due_ms: u64) -> DueJob {
        let id = JobId::parse(format!("lifetime:ORD-{number:03}")).unwrap();
        DueJob {
            job: NewJob { queue: "lifetime-cancel-queue", id, delay: Duration::ZERO, payload: None, slots: None },
            due_ms,
        }
    }

    /// Reads all timers in each pass, in an order unrelated to their due times.
    fn read_in_passes(timers: &[DueJob], from_ms: u64, most: usize) -> Vec<Vec<DueJob>> {
        let (mut passes, mut after) = (Vec::new(), (from_ms, None));
        loop {
            let mut earliest = EarliestTimers::after(after, most);
            timers.iter().cloned().for_each(|timer| earliest.push(timer));
            assert!(earliest.held.len() < 2 * most);
            let (sorted, is_rest) = earliest.into_sorted();
            let last = sorted.last().map(|last| (last.due_ms, Some(last.job.id.clone())));
            passes.push(sorted);
            match last {
                Some(last) if !is_rest => after = last,
                _ => return passes,
            }
        }
    }

    #[test]
    fn passes_yield_every_timer_once_by_due_time() {
        // More timers have the same due time than one pass can hold.
        let timers: Vec<DueJob> = (0..200).map(|n| timer(n * 37 % 200, 1_000 + n * 7919 % 23)).collect();
        for most in [1, 2, 7, 50, 100, 101, 500] {
            let all: Vec<DueJob> = read_in_passes(&timers, 0, most).concat();
            assert_eq!(all.len(), 200, "{most}");
            assert!(all.is_sorted_by(|a, b| place_of(a) < place_of(b)), "{most}");
        }
        assert_eq!(read_in_passes(&timers, 0, 101).len(), 1, "all timers fit into one pass");
    }

    #[test]
    fn timers_before_the_position_are_skipped() {
        let timers: Vec<DueJob> = (0..100).map(|n| timer(n, n)).collect();
        let rest = read_in_passes(&timers, 40, 10).concat();
        assert_eq!(rest.iter().map(|timer| timer.due_ms).collect::<Vec<_>>(), (40..100).collect::<Vec<_>>());
        assert!(read_in_passes(&timers, 100, 10).concat().is_empty());
    }
}
