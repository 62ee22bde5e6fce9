//! Rescues expired leases, then leases due jobs.

use super::{Job, LEASE_MS, Reference, State, TakenJob, Took};
use queue::store::TakeMode;

const FURTHEST_MS: u64 = 2 * LEASE_MS;
const HORIZON_LOOK_MS: u64 = 50;

impl Reference {
    /// Returns a queue's due jobs, the oldest first, then the later ones.
    fn due(&self, queue: &str) -> Vec<(u64, String)> {
        let due = |(id, job): (&String, &Job)| match job.state {
            State::Due { at } if job.queue == queue => Some((at, id.clone())),
            _ => None,
        };
        let mut all: Vec<_> = self.jobs.iter().filter_map(due).collect();
        all.sort();
        all
    }

    /// Returns the suspects of these queues that may be taken, the longest due first. Of two that are due together, the
    /// first queue's comes first.
    fn suspects(&self, queues: &[&'static str], latest: u64) -> Vec<(u64, String)> {
        let due = |(id, job): (&String, &Job)| match job.state {
            State::Suspect { at } if at <= latest => {
                queues.iter().position(|queue| *queue == job.queue).map(|number| (at, number, id.clone()))
            }
            _ => None,
        };
        let mut all: Vec<_> = self.jobs.iter().filter_map(due).collect();
        all.sort();
        all.into_iter().map(|(at, _, id)| (at, id)).collect()
    }

    fn rescue(&mut self, queue: &str) -> Vec<String> {
        for job in self.jobs.values_mut().filter(|job| job.queue == queue) {
            if let State::Leased { until, .. } = &mut job.state
                && *until > self.now + FURTHEST_MS
            {
                *until = self.now + LEASE_MS;
            }
        }
        let expired = |(id, job): (&String, &Job)| match job.state {
            State::Leased { until, .. } if job.queue == queue && until <= self.now => Some((until, id.clone())),
            _ => None,
        };
        let mut expired: Vec<_> = self.jobs.iter().filter_map(expired).collect();
        expired.sort();
        let mut dead = Vec::new();
        for (_, id) in expired {
            let job = self.jobs.get_mut(&id).unwrap();
            let State::Leased { due, again, .. } = job.state else { unreachable!() };
            job.lost += 1;
            if job.lost >= 5 {
                let error = format!("lost {} deliveries: its worker died or lost Redis each time", job.lost);
                job.bury(self.now, &error, due);
                dead.push(id);
            } else {
                let at = again.map_or(due, |again| again.min(due)).min(self.now);
                job.state = if job.lost >= 2 { State::Suspect { at } } else { State::Due { at } };
            }
        }
        dead
    }

    fn lease(&mut self, id: &str, at: u64, token: &str, took: &mut Took) {
        let slots = self.take_reservation(id, token);
        let job = self.jobs.get_mut(id).unwrap();
        assert!(matches!(job.state, State::Due { .. } | State::Suspect { .. }), "{id} is not due");
        job.state = State::Leased { until: self.now + LEASE_MS, token: token.to_owned(), due: at, again: None };
        took.jobs.push(TakenJob { id: id.to_owned(), due: at, failed: job.failed, lost: job.lost, slots });
    }

    pub(in crate::model) fn take(
        &mut self,
        permits: &[(&'static str, usize)],
        mode: TakeMode,
        process: (&str, &str),
        ended: &[(String, String)],
    ) -> Option<Took> {
        for (id, holder) in ended {
            self.give_up(id, holder);
        }
        let latest = self.takeable().latest_due(self.now)?;
        let mut took = self.take_jobs(permits, mode, process, latest);
        took.is_rebuilding = !self.epoch;
        took.next_due = [took.next_due, self.next_slots_end()].into_iter().flatten().min();
        Some(took)
    }

    fn take_jobs(
        &mut self,
        permits: &[(&'static str, usize)],
        mode: TakeMode,
        (boot, token): (&str, &str),
        latest: u64,
    ) -> Took {
        let mut took = Took::default();
        for (queue, _) in permits {
            took.dead.extend(self.rescue(queue));
        }
        let lapsed = self.end_expired();
        self.begin_handing();
        self.hand_out(&lapsed);
        let open: Vec<&'static str> =
            permits.iter().map(|(queue, _)| *queue).filter(|queue| !self.paused.contains(queue)).collect();
        let suspect = self.suspects(&open, latest).into_iter().next();
        took.suspects = suspect.is_some();
        if mode == TakeMode::Quiesce || (took.suspects && mode != TakeMode::Rest) {
            took.has_turn = self.take_turn(boot);
        }
        match mode {
            TakeMode::Normal => {}
            TakeMode::Quiesce => return took,
            TakeMode::Alone if took.has_turn => {
                let (at, id) = suspect.unwrap();
                self.lease(&id, at, token, &mut took);
                return took;
            }
            TakeMode::Rest | TakeMode::Alone => {
                self.turn.take_if(|(holder, _)| holder == boot);
            }
        }
        for &(queue, many) in permits.iter().filter(|(queue, many)| *many > 0 && open.contains(queue)) {
            let is_in_turn = matches!(mode, TakeMode::Normal | TakeMode::Rest);
            let reserved = if is_in_turn { self.reserved_in_turn(queue) } else { self.reserved(queue) };
            let reserved: Vec<_> = reserved.into_iter().take(many).collect();
            let mut leased = reserved.len();
            for (since, id) in reserved {
                self.lease(&id, since, token, &mut took);
            }
            let due = self.due(queue).into_iter().take_while(|(at, _)| *at <= latest);
            for (at, id) in due.take(many - leased).collect::<Vec<_>>() {
                let job = self.jobs.get_mut(&id).unwrap();
                if job.lost >= 2 {
                    job.state = State::Suspect { at };
                    continue;
                }
                let need = job.slots.clone();
                let (is_leased, has_slots) = need.map_or((true, false), |need| self.seek(queue, &id, &need, token));
                if is_leased {
                    self.lease(&id, at, token, &mut took);
                    took.jobs.last_mut().unwrap().slots |= has_slots;
                    leased += 1;
                } else {
                    let job = self.jobs.get_mut(&id).unwrap();
                    job.state = State::Parked { since: self.now };
                    job.put_off &= job.failed > 0 || job.lost > 0;
                }
            }
            if leased < many {
                let left = self.due(queue).into_iter().map(|(at, _)| at).next();
                // A due job beyond the horizon is checked again soon.
                let left = left.map(|at| if at > latest && at <= self.now { self.now + HORIZON_LOOK_MS } else { at });
                took.next_due = [took.next_due, left].into_iter().flatten().min();
            }
        }
        took
    }

    fn take_turn(&mut self, boot: &str) -> bool {
        let in_force = |until: u64| until > self.now && until <= self.now + FURTHEST_MS;
        if self.turn.as_ref().is_some_and(|(holder, until)| holder != boot && in_force(*until)) {
            return false;
        }
        self.turn = Some((boot.to_owned(), self.now + LEASE_MS));
        true
    }
}
