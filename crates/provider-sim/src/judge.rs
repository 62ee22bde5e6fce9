//! Judge of callers: records their calls, and whether the calls were allowed. Pure.
//!
//! A call is open from its receipt until its answer, or until its connection is closed. A call that is refused as late
//! is never open: it counts only as `late_refused`, not as an overlap or over-admission.

use std::collections::HashMap;

use serde::Serialize;

/// Counts since the start or the last reset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct JudgeCounters {
    /// Accepted calls, whatever their result.
    pub calls: u64,
    /// Maximum number of calls open at the same time.
    pub max_open: u64,
    /// Maximum number of calls open at the same time at one server.
    pub max_open_per_server: u64,
    /// Maximum number of calls open at the same time for one account.
    pub max_open_per_account: u64,
    /// Calls that arrived while another call of their binding was open.
    pub overlaps: u64,
    /// Calls that arrived while the limit of open calls was reached, in total or at their server.
    pub over_admissions: u64,
    /// Keys repeated with other content.
    pub keys_differing: u64,
    /// Keys repeated with the same content.
    pub duplicates: u64,
    /// Cycles that were skipped: a start whose cycle is not the next.
    pub gaps: u64,
    /// Starts with a new key for a cycle before the last one.
    pub cycles_backwards: u64,
    /// Calls refused because they arrived after `Call-Until` or with an older fence.
    pub late_refused: u64,
}

/// Server, account, binding and fence of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallParty {
    pub server: String,
    pub account: String,
    pub binding: String,
    pub fence: i64,
}

/// Limits of calls open at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToldLimits {
    pub in_all: u64,
    pub per_server: u64,
}

#[derive(Debug, Default)]
struct BindingRecord {
    open: u64,
    highest_fence: i64,
    /// Cycle of the last new start.
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

    /// Returns the number of open calls.
    pub fn open_calls(&self) -> u64 {
        self.open
    }

    /// Resets the counters. Open calls, fences and cycles are kept.
    pub fn reset_counters(&mut self) {
        self.counters = JudgeCounters::default();
    }

    /// Returns whether a call is late: its time has passed, or a newer fence of its binding was seen.
    pub fn refuses_late(&mut self, party: &CallParty, is_past: bool) -> bool {
        let record = self.bindings.entry(party.binding.clone()).or_default();
        let late = is_past || party.fence < record.highest_fence;
        record.highest_fence = record.highest_fence.max(if late { 0 } else { party.fence });
        self.counters.late_refused += u64::from(late);
        late
    }

    /// Opens a call. [`close_call`](Self::close_call) ends it.
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

    /// Records a new start. The first cycle of a binding may have any number.
    pub fn record_start(&mut self, binding: &str, cycle: i64) {
        let record = self.bindings.entry(binding.to_owned()).or_default();
        if let Some(last) = record.last_cycle {
            self.counters.gaps += u64::try_from(cycle - last - 1).unwrap_or(0);
            self.counters.cycles_backwards += u64::from(cycle <= last);
        }
        record.last_cycle = Some(record.last_cycle.map_or(cycle, |last| last.max(cycle)));
    }

    /// Records a repeated key.
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
    fn calls_within_limits_count_no_violation() {
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
    fn calls_of_one_binding_overlap_across_servers() {
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
    fn late_call_counts_only_as_refused() {
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
    fn judge_counts_gaps_and_backward_cycles() {
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
