//! What callers did, and whether they were allowed to. Pure.
//!
//! A call is open from its receipt until its answer, or until its connection is closed. A call that is refused as late was
//! never open: it counts as `late_refused`, neither as an overlap nor as over-admission.

use std::collections::HashMap;

use serde::Serialize;

/// Numbers since the start, or since they were reset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct JudgeCounters {
    /// Calls that were taken, whatever became of them.
    pub calls: u64,
    /// Most calls open at the same time.
    pub max_open: u64,
    /// Most calls open at the same time at one server.
    pub max_open_per_server: u64,
    /// Most calls open at the same time for one account.
    pub max_open_per_account: u64,
    /// Calls that came while another of their binding was open.
    pub overlaps: u64,
    /// Calls that came while as many were open, in all or at their server, as are allowed.
    pub over_admissions: u64,
    /// Keys that came again with other content.
    pub keys_differing: u64,
    /// Keys that came again with the same content.
    pub duplicates: u64,
    /// Cycles that were passed over: a start whose cycle is not the next.
    pub gaps: u64,
    /// Starts of a cycle before the last one, under a key that was never seen.
    pub cycles_backwards: u64,
    /// Calls refused because they came after `Call-Until` or with an older fence.
    pub late_refused: u64,
}

/// Who a call is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallParty {
    pub server: String,
    pub account: String,
    pub binding: String,
    pub fence: i64,
}

/// How many calls may be open at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToldLimits {
    pub in_all: u64,
    pub per_server: u64,
}

#[derive(Debug, Default)]
struct BindingRecord {
    open: u64,
    highest_fence: i64,
    /// The cycle of the last start that was new.
    last_cycle: Option<i64>,
}

#[derive(Debug, Default)]
pub struct CallJudge {
    counters: JudgeCounters,
    open: u64,
    servers: HashMap<String, u64>,
    accounts: HashMap<String, u64>,
    bindings: HashMap<String, BindingRecord>,
}

impl CallJudge {
    pub fn counters(&self) -> &JudgeCounters {
        &self.counters
    }

    /// Calls open now.
    pub fn open_calls(&self) -> u64 {
        self.open
    }

    /// Begins to count again. What is open, and what fences and cycles were seen, stays known.
    pub fn reset_counters(&mut self) {
        self.counters = JudgeCounters::default();
    }

    /// Returns whether a call is late: its time is over, or a newer claim of its binding was seen.
    pub fn refuses_late(&mut self, party: &CallParty, is_past: bool) -> bool {
        let record = self.bindings.entry(party.binding.clone()).or_default();
        let late = is_past || party.fence < record.highest_fence;
        record.highest_fence = record.highest_fence.max(if late { 0 } else { party.fence });
        self.counters.late_refused += u64::from(late);
        late
    }

    /// Takes a call. [`close_call`](Self::close_call) ends it.
    pub fn open_call(&mut self, party: &CallParty, limits: ToldLimits) {
        let binding = self.bindings.entry(party.binding.clone()).or_default();
        self.counters.overlaps += u64::from(binding.open > 0);
        binding.open += 1;
        let server = self.servers.entry(party.server.clone()).or_default();
        let is_over = self.open >= limits.in_all || *server >= limits.per_server;
        self.counters.over_admissions += u64::from(is_over);
        *server += 1;
        let account = self.accounts.entry(party.account.clone()).or_default();
        *account += 1;
        self.open += 1;
        self.counters.calls += 1;
        self.counters.max_open = self.counters.max_open.max(self.open);
        self.counters.max_open_per_server = self.counters.max_open_per_server.max(*server);
        self.counters.max_open_per_account = self.counters.max_open_per_account.max(*account);
    }

    pub fn close_call(&mut self, party: &CallParty) {
        self.open = self.open.saturating_sub(1);
        for (count, name) in [(&mut self.servers, &party.server), (&mut self.accounts, &party.account)] {
            if let Some(open) = count.get_mut(name) {
                *open = open.saturating_sub(1);
                if *open == 0 {
                    count.remove(name);
                }
            }
        }
        if let Some(binding) = self.bindings.get_mut(&party.binding) {
            binding.open = binding.open.saturating_sub(1);
        }
    }

    /// Records a start that was never seen before. The first of a binding may have any number.
    pub fn record_start(&mut self, binding: &str, cycle: i64) {
        let record = self.bindings.entry(binding.to_owned()).or_default();
        if let Some(last) = record.last_cycle {
            self.counters.gaps += u64::try_from(cycle - last - 1).unwrap_or(0);
            self.counters.cycles_backwards += u64::from(cycle <= last);
        }
        record.last_cycle = Some(record.last_cycle.map_or(cycle, |last| last.max(cycle)));
    }

    /// Records a key that came again.
    pub fn record_repeat(&mut self, is_same: bool) {
        *(if is_same { &mut self.counters.duplicates } else { &mut self.counters.keys_differing }) += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ToldLimits = ToldLimits { in_all: 3, per_server: 2 };

    fn party(binding: &str, server: &str, fence: i64) -> CallParty {
        CallParty {
            server: server.to_owned(),
            account: format!("account of {binding}"),
            binding: binding.to_owned(),
            fence,
        }
    }

    #[test]
    fn calls_within_the_limits_are_not_held_against_their_callers() {
        let mut judge = CallJudge::default();
        let calls = [party("A", "S1", 1), party("B", "S1", 1), party("C", "S2", 1)];
        for call in &calls {
            judge.open_call(call, LIMITS);
        }
        for call in &calls {
            judge.close_call(call);
        }
        let wanted = JudgeCounters {
            calls: 3,
            max_open: 3,
            max_open_per_server: 2,
            max_open_per_account: 1,
            ..JudgeCounters::default()
        };
        assert_eq!((judge.counters(), judge.open_calls()), (&wanted, 0));
        judge.reset_counters();
        assert_eq!(judge.counters(), &JudgeCounters::default());
    }

    #[test]
    fn excess_call_is_counted_per_server_and_total() {
        let mut judge = CallJudge::default();
        for (binding, server) in [("A", "S1"), ("B", "S1"), ("C", "S1")] {
            judge.open_call(&party(binding, server, 1), LIMITS);
        }
        assert_eq!(judge.counters().over_admissions, 1, "the third at S1");
        judge.open_call(&party("D", "S2", 1), LIMITS);
        assert_eq!(judge.counters().over_admissions, 2, "the fourth in all");
        judge.close_call(&party("A", "S1", 1));
        judge.close_call(&party("B", "S1", 1));
        judge.open_call(&party("E", "S1", 1), LIMITS);
        assert_eq!((judge.counters().over_admissions, judge.counters().overlaps), (2, 0));
    }

    #[test]
    fn two_calls_of_a_binding_overlap_wherever_they_are() {
        let mut judge = CallJudge::default();
        judge.open_call(&party("A", "S1", 1), LIMITS);
        judge.open_call(&party("A", "S2", 2), LIMITS);
        assert_eq!(judge.counters().overlaps, 1);
        judge.close_call(&party("A", "S1", 1));
        judge.close_call(&party("A", "S2", 2));
        judge.open_call(&party("A", "S1", 3), LIMITS);
        assert_eq!(judge.counters().overlaps, 1);
    }

    #[test]
    fn a_late_call_is_refused_and_held_against_nothing_else() {
        let mut judge = CallJudge::default();
        assert!(!judge.refuses_late(&party("A", "S1", 5), false));
        judge.open_call(&party("A", "S1", 5), LIMITS);
        assert!(judge.refuses_late(&party("A", "S1", 4), false), "an older fence");
        assert!(judge.refuses_late(&party("A", "S1", 9), true), "its time is over");
        assert!(!judge.refuses_late(&party("A", "S1", 6), false), "a fence that was refused is forgotten");
        assert!(!judge.refuses_late(&party("B", "S1", 1), false), "fences are of one binding");
        assert_eq!((judge.counters().late_refused, judge.counters().overlaps), (2, 0));
    }

    #[test]
    fn cycles_are_to_follow_each_other() {
        let mut judge = CallJudge::default();
        for cycle in [7, 8, 9] {
            judge.record_start("A", cycle);
        }
        assert_eq!(judge.counters().gaps, 0);
        judge.record_start("A", 12);
        judge.record_start("B", 1);
        assert_eq!((judge.counters().gaps, judge.counters().cycles_backwards), (2, 0));
        judge.record_start("A", 11);
        judge.record_start("A", 13);
        assert_eq!((judge.counters().gaps, judge.counters().cycles_backwards), (2, 1));
    }
}
