//! Expected content of Redis for slots, their lines and the ring.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    laws::SlotCounts,
    reference::{Job, Reference, State, Wanted},
};
use queue::{SlotNeed, store::ParkVerdict};

const RESERVED_MS: u64 = 2_000;
const MOST_LAPSES: u64 = 2;
const RESERVED: &str = "-";

/// Need of a job, and its place in the line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WantedSlots {
    queue: &'static str,
    group: String,
    own: String,
    hold: u64,
    number: u64,
    since: u64,
    lapses: u64,
}

impl WantedSlots {
    pub(super) fn new(queue: &'static str, need: &SlotNeed) -> Self {
        let hold = u64::try_from(need.hold().as_millis()).unwrap();
        let (group, own) = (need.group().to_owned(), need.own().to_owned());
        Self { queue, group, own, hold, number: 0, since: 0, lapses: 0 }
    }

    fn text(&self, last: &str) -> String {
        let Self { queue, group, own, hold, number, since, lapses } = self;
        format!("{queue} {group} {own} {hold} {number} {since} {lapses} {last}")
    }
}

#[derive(Debug, Clone)]
struct ParkedJob {
    wanted: WantedSlots,
    behind: Option<String>,
}

#[derive(Debug, Clone)]
struct SlotRecord {
    wanted: WantedSlots,
    holder: String,
    /// For a reservation: its start.
    since: u64,
    ends: u64,
}

#[derive(Debug, Default)]
pub(super) struct SlotTable {
    pub(super) counts: SlotCounts,
    limits: BTreeMap<String, u32>,
    parked: BTreeMap<String, ParkedJob>,
    held: BTreeMap<String, SlotRecord>,
    owns: BTreeMap<String, Vec<String>>,
    ring: BTreeMap<String, u64>,
    /// Jobs in the order in which they were handed their slots.
    handed: Vec<String>,
    number: u64,
    turn: u64,
}

impl SlotTable {
    pub(super) fn with_counts(counts: SlotCounts) -> Self {
        Self { counts, ..Self::default() }
    }

    pub(super) fn is_parked(&self, id: &str) -> bool {
        self.parked.contains_key(id)
    }

    /// Returns the jobs that have slots reserved.
    pub(super) fn all_reserved(&self) -> BTreeSet<String> {
        self.held.iter().filter(|(_, held)| held.holder == RESERVED).map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn parked(&self) -> usize {
        self.parked.len()
    }

    fn limit(&self, name: &str) -> usize {
        self.limits.get(name).map_or(0, |limit| *limit as usize)
    }

    fn shard_is_free(&self) -> bool {
        self.held.len() < self.limit("all")
    }

    fn used(&self, group: &str) -> usize {
        self.held.values().filter(|held| held.wanted.group == group).count()
    }

    fn group_is_free(&self, group: &str) -> bool {
        self.used(group) < self.limit(&format!("group:{group}"))
    }

    /// Returns the jobs in a group's line, in order.
    fn line(&self, group: &str) -> Vec<String> {
        let in_line = |job: &ParkedJob| job.behind.is_none() && job.wanted.group == group;
        self.sorted(in_line)
    }

    fn sorted(&self, wanted: impl Fn(&ParkedJob) -> bool) -> Vec<String> {
        let mut ids: Vec<_> = self
            .parked
            .iter()
            .filter(|(_, job)| wanted(job))
            .map(|(id, job)| (job.wanted.number, id.clone()))
            .collect();
        ids.sort();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    fn blocking_own(&self, id: &str, wanted: &WantedSlots) -> Option<String> {
        if self.owns.contains_key(&wanted.own) {
            return Some(wanted.own.clone());
        }
        self.held.get(id).map(|held| held.wanted.own.clone())
    }

    fn refresh_ring(&mut self, group: &str) {
        if self.line(group).is_empty() || !self.group_is_free(group) {
            self.ring.remove(group);
        } else if !self.ring.contains_key(group) {
            self.turn += 1;
            self.ring.insert(group.to_owned(), self.turn);
        }
    }

    fn line_up(&mut self, id: &str, wanted: WantedSlots) {
        let behind = self.blocking_own(id, &wanted);
        self.counts.behind_own += usize::from(behind.is_some());
        let group = behind.is_none().then(|| wanted.group.clone());
        self.parked.insert(id.to_owned(), ParkedJob { wanted, behind });
        if let Some(group) = group {
            self.refresh_ring(&group);
        }
    }

    fn join_lines(&mut self, own: &str) {
        if self.owns.contains_key(own) {
            return;
        }
        for id in self.sorted(|job| job.behind.as_deref() == Some(own)) {
            let wanted = self.parked[&id].wanted.clone();
            self.line_up(&id, wanted);
        }
    }

    fn hold(&mut self, id: &str, wanted: WantedSlots, holder: &str, since: u64, ends: u64) {
        let group = wanted.group.clone();
        self.owns.entry(wanted.own.clone()).or_default().push(id.to_owned());
        self.held.insert(id.to_owned(), SlotRecord { wanted, holder: holder.to_owned(), since, ends });
        self.refresh_ring(&group);
    }

    fn free(&mut self, id: &str) -> SlotRecord {
        let held = self.held.remove(id).unwrap();
        let owners = self.owns.get_mut(&held.wanted.own).unwrap();
        owners.retain(|owner| owner != id);
        if owners.is_empty() {
            self.owns.remove(&held.wanted.own);
        }
        self.join_lines(&held.wanted.own);
        self.refresh_ring(&held.wanted.group);
        held
    }

    /// Writes everything in Redis' format: key, member or field, score or value.
    pub(super) fn draw(&self, suspects: &BTreeSet<String>, mut put: impl FnMut(String, &str, String)) {
        for (id, ParkedJob { wanted, behind }) in &self.parked {
            put("parked".to_owned(), id, wanted.text(behind.as_deref().unwrap_or("-")));
            let line =
                behind.as_ref().map_or_else(|| format!("slot_line:{}", wanted.group), |own| format!("slot_wait:{own}"));
            put(line, id, wanted.number.to_string());
        }
        for (id, SlotRecord { wanted, holder, since, ends }) in &self.held {
            if holder == RESERVED && !suspects.contains(id) {
                put(format!("slot_reserved:{}", wanted.queue), id, since.to_string());
            }
            put("slot_holds".to_owned(), id, wanted.text(holder));
            put("slot_ends".to_owned(), id, ends.to_string());
            put("slots_used".to_owned(), &wanted.group, self.used(&wanted.group).to_string());
        }
        for (own, ids) in &self.owns {
            put("slot_owns".to_owned(), own, ids.join(" "));
        }
        for (name, limit) in &self.limits {
            put("slot_limits".to_owned(), name, limit.to_string());
        }
        for (group, turn) in &self.ring {
            put("slot_ring".to_owned(), group, turn.to_string());
        }
        for (name, last) in [("number", self.number), ("turn", self.turn)] {
            if last > 0 {
                put("slot_numbers".to_owned(), name, last.to_string());
            }
        }
    }
}

/// Result of an acquire, as the script returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Granted,
    Busy,
    Closed,
}

impl Reference {
    pub(super) fn acquire(&mut self, queue: &'static str, id: &str, need: &SlotNeed, holder: &str) -> Asked {
        if !self.open {
            return Asked::Closed;
        }
        let lapsed = self.end_expired();
        self.hand_out(&lapsed);
        let wanted = WantedSlots::new(queue, need);
        let slots = &mut self.slots;
        let is_free = slots.shard_is_free()
            && slots.group_is_free(&wanted.group)
            && slots.blocking_own(id, &wanted).is_none()
            && slots.line(&wanted.group).is_empty();
        if !is_free || slots.held.contains_key(id) || slots.is_parked(id) {
            return Asked::Busy;
        }
        let ends = self.now + wanted.hold;
        slots.hold(id, wanted, holder, self.now, ends);
        slots.counts.granted += 1;
        Asked::Granted
    }

    /// Frees the slots if this holder has them, without handing them over.
    pub(super) fn give_up(&mut self, id: &str, holder: &str) -> bool {
        let is_held = self.slots.held.get(id).is_some_and(|held| held.holder == holder);
        if is_held {
            self.slots.free(id);
        }
        is_held
    }

    pub(super) fn release_slots(&mut self, ended: &[(String, String)]) -> Vec<bool> {
        let freed = ended.iter().map(|(id, holder)| self.give_up(id, holder)).collect();
        self.hand_out(&BTreeSet::new());
        freed
    }

    pub(super) fn set_limits(&mut self, all: Option<u32>, groups: &[(String, Option<u32>)]) {
        if let Some(all) = all {
            self.slots.limits.insert("all".to_owned(), all);
        }
        for (group, most) in groups {
            let name = format!("group:{group}");
            match most {
                Some(most) => self.slots.limits.insert(name, *most),
                None => self.slots.limits.remove(&name),
            };
            self.slots.refresh_ring(group);
        }
        self.hand_out(&BTreeSet::new());
    }

    pub(super) fn restore(&mut self, queue: &'static str, id: &str, need: &SlotNeed) {
        let wanted = WantedSlots::new(queue, need);
        let ends = self.now + wanted.hold;
        let Some(held) = self.slots.held.get_mut(id) else {
            return self.slots.hold(id, wanted, "restored", self.now, ends);
        };
        held.ends = held.ends.max(ends);
        held.wanted.hold = held.wanted.hold.max(wanted.hold);
        if held.holder == RESERVED {
            held.holder = "restored".to_owned();
        }
    }

    pub(super) fn park_jobs(&mut self, jobs: &[(Wanted, SlotNeed)]) -> Vec<ParkVerdict> {
        let mut verdicts = Vec::new();
        for (wanted, need) in jobs {
            verdicts.push(match self.jobs.get(&wanted.id).map(|job| &job.state) {
                Some(State::Parked { .. }) => ParkVerdict::Kept,
                Some(_) => ParkVerdict::Elsewhere,
                None => {
                    let job = Job::new(wanted, State::Parked { since: self.now });
                    self.jobs.insert(wanted.id.clone(), job);
                    self.park(&wanted.id, WantedSlots::new(wanted.queue, need));
                    ParkVerdict::Parked
                }
            });
        }
        self.hand_out(&BTreeSet::new());
        verdicts
    }

    /// Gives a due job its stated slots, or parks it. Returns whether to lease it, and whether it has slots.
    pub(super) fn seek(&mut self, queue: &'static str, id: &str, need: &SlotNeed, holder: &str) -> (bool, bool) {
        let wanted = WantedSlots::new(queue, need);
        let slots = &mut self.slots;
        let held = slots.held.get(id);
        let are_known = slots.limit("all") > 0 && slots.limit(&format!("group:{}", wanted.group)) > 0;
        if !are_known || held.is_some_and(|held| held.holder == RESERVED) {
            return (true, false);
        }
        let is_free = self.open
            && held.is_none()
            && slots.shard_is_free()
            && slots.group_is_free(&wanted.group)
            && slots.blocking_own(id, &wanted).is_none()
            && slots.line(&wanted.group).is_empty();
        if is_free {
            let ends = self.now + wanted.hold;
            slots.hold(id, wanted, holder, self.now, ends);
            slots.counts.sought += 1;
            return (true, true);
        }
        slots.counts.parked_due += 1;
        self.park(id, wanted);
        (false, false)
    }

    /// Clears the order of earlier hand-overs.
    pub(super) fn begin_handing(&mut self) {
        self.slots.handed.clear();
    }

    pub(super) fn park(&mut self, id: &str, mut wanted: WantedSlots) {
        self.slots.number += 1;
        (wanted.number, wanted.since) = (self.slots.number, self.now);
        self.slots.line_up(id, wanted);
    }

    pub(super) fn leave_line(&mut self, id: &str) {
        let wanted = self.slots.parked.remove(id).unwrap().wanted;
        self.slots.refresh_ring(&wanted.group);
        self.slots.join_lines(&wanted.own);
    }

    pub(super) fn drop_reservation(&mut self, id: &str) {
        if self.slots.held.get(id).is_some_and(|held| held.holder == RESERVED) {
            self.slots.free(id);
            self.hand_out(&BTreeSet::new());
        }
    }

    /// Turns a reservation into slots. Returns whether the job has slots now.
    pub(super) fn take_reservation(&mut self, id: &str, token: &str) -> bool {
        let Some(held) = self.slots.held.get_mut(id).filter(|held| held.holder == RESERVED) else { return false };
        if !self.open {
            self.slots.free(id);
            return false;
        }
        (held.holder, held.ends) = (token.to_owned(), self.now + held.wanted.hold);
        self.slots.counts.taken += 1;
        true
    }

    /// Returns the jobs of a queue that have slots reserved, with the time of the reservation, the oldest first.
    pub(super) fn reserved(&self, queue: &str) -> Vec<(u64, String)> {
        let suspects = self.all_suspects();
        let reserved = self.slots.held.iter().filter(|(id, held)| held.holder == RESERVED && !suspects.contains(*id));
        let of_queue = reserved.filter(|(_, held)| held.wanted.queue == queue);
        let mut all: Vec<_> = of_queue.map(|(id, held)| (held.since, id.clone())).collect();
        all.sort();
        all
    }

    /// Returns the jobs as [`reserved`](Self::reserved) does, but with those of this take last, in the order of their
    /// hand-over.
    pub(super) fn reserved_in_turn(&self, queue: &str) -> Vec<(u64, String)> {
        let place = |id: &String| self.slots.handed.iter().rposition(|handed| handed == id);
        let mut all = self.reserved(queue);
        all.sort_by_key(|(_, id)| place(id));
        all
    }

    pub(super) fn next_slots_end(&self) -> Option<u64> {
        self.slots.held.values().map(|held| held.ends).min()
    }

    pub(super) fn end_expired(&mut self) -> BTreeSet<String> {
        let now = self.now;
        while let Some((_, last)) = self.slots.held.iter_mut().max_by_key(|(id, held)| (held.ends, (*id).clone())) {
            let hold = last.wanted.hold;
            let (most, cut) = if last.holder == RESERVED { (hold.max(RESERVED_MS), RESERVED_MS) } else { (hold, hold) };
            if last.ends <= now + most {
                break;
            }
            last.ends = now + cut;
        }
        let mut expired: Vec<(u64, String)> = self
            .slots
            .held
            .iter()
            .filter(|(_, held)| held.ends <= now)
            .map(|(id, held)| (held.ends, id.clone()))
            .collect();
        expired.sort();
        let mut lapsed = BTreeSet::new();
        for (_, id) in expired {
            let SlotRecord { mut wanted, holder, .. } = self.slots.free(&id);
            let Some(job) = self.jobs.get_mut(&id).filter(|_| holder == RESERVED) else { continue };
            if !matches!(job.state, State::Due { .. } | State::Suspect { .. }) || job.queue != wanted.queue {
                continue;
            }
            job.state = State::Parked { since: wanted.since };
            wanted.lapses += 1;
            self.slots.counts.lapsed += 1;
            if wanted.lapses == MOST_LAPSES {
                self.slots.number += 1;
                self.slots.counts.gave_place_up += 1;
                (wanted.number, wanted.lapses) = (self.slots.number, 0);
            }
            self.slots.line_up(&id, wanted);
            lapsed.insert(id);
        }
        lapsed
    }

    /// Hands free slots over. The slots of `lapsed` jobs go to other jobs first.
    pub(super) fn hand_out(&mut self, lapsed: &BTreeSet<String>) {
        if !self.open {
            return;
        }
        if !lapsed.is_empty() {
            self.hand_out_passing(lapsed);
        }
        self.hand_out_passing(&BTreeSet::new());
    }

    fn hand_out_passing(&mut self, passed_over: &BTreeSet<String>) {
        let mut set_aside = Vec::new();
        while self.slots.shard_is_free() {
            let next = self.slots.ring.iter().min_by_key(|(_, turn)| **turn).map(|(group, _)| group.clone());
            let Some(group) = next else { break };
            self.slots.ring.remove(&group);
            let Some(id) = self.slots.line(&group).into_iter().find(|id| !passed_over.contains(id)) else {
                set_aside.push(group);
                continue;
            };
            let wanted = self.slots.parked.remove(&id).unwrap().wanted;
            if self.slots.blocking_own(&id, &wanted).is_some() {
                self.slots.line_up(&id, wanted);
            } else {
                self.slots.counts.handed += 1;
                self.slots.handed.push(id.clone());
                let job = self.jobs.get_mut(&id).unwrap();
                let (state, lasts) = if job.lost >= 2 {
                    self.slots.counts.suspects += 1;
                    (State::Suspect { at: self.now }, wanted.hold.max(RESERVED_MS))
                } else {
                    (State::Due { at: self.now }, RESERVED_MS)
                };
                job.state = state;
                self.slots.hold(&id, wanted, RESERVED, self.now, self.now + lasts);
            }
            self.slots.refresh_ring(&group);
        }
        for group in set_aside {
            self.slots.refresh_ring(&group);
        }
    }
}
