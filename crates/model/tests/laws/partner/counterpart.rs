//! The partner in the model. It has its own state and reports it in callbacks.

use model::partner::{
    answer::{JobStatus, PartnerStatus},
    observation::{BookingPhase, Observation, ObservationSource},
};

use super::orders::{Luck, Model, observation, pick};

impl Model {
    /// Returns the attempts for which the partner will send a driver; none after it has lost its keys.
    pub(super) fn open_at_partner(&self) -> impl Iterator<Item = i32> {
        let open =
            |booking: &JobStatus| matches!(booking.status, PartnerStatus::Searching | PartnerStatus::DriverAssigned);
        self.truth.iter().filter(move |(_, booking)| !self.forgot && open(booking)).map(|(attempt, _)| *attempt)
    }

    /// Books like the partner: the same key always yields the same booking.
    pub(super) fn book(&mut self, attempt: i32, luck: Luck) -> Option<Result<String, ()>> {
        let booking_id = format!("B-{attempt}");
        if luck == Luck::NoEffect {
            return None;
        }
        // The partner accepts a booking that it already has, and never changes a refusal.
        if self.refused.contains(&attempt) || (luck == Luck::Refused && !self.truth.contains_key(&attempt)) {
            self.refused.insert(attempt);
            return (luck != Luck::LostAnswer).then_some(Err(()));
        }
        let status = PartnerStatus::Searching;
        let new = JobStatus { booking_id: booking_id.clone(), job_id: None, status, driver_id: None };
        self.truth.entry(attempt).or_insert(new);
        (luck != Luck::LostAnswer).then_some(Ok(booking_id))
    }

    pub(super) fn ask(&self, attempt: i32, luck: Luck) -> Option<Option<Observation>> {
        let status = self.truth.get(&attempt).cloned();
        (luck == Luck::Fine).then(|| status.map(|status| Observation::from_answer(attempt, status)))
    }

    pub(super) fn cancel(&mut self, attempt: i32, luck: Luck) -> Option<bool> {
        if matches!(luck, Luck::NoEffect | Luck::Refused) {
            return None;
        }
        let cancelled = match self.truth.get(&attempt).map(|b| b.status) {
            Some(PartnerStatus::PickedUp | PartnerStatus::Completed) => false,
            Some(PartnerStatus::Cancelled) | None => true,
            Some(_) => {
                self.becomes(attempt, PartnerStatus::Cancelled, BookingPhase::Cancelled);
                true
            }
        };
        (luck == Luck::Fine).then_some(cancelled)
    }

    /// Advances one of the partner's bookings and sends a callback.
    pub(super) fn partner(&mut self, n: usize, finds: bool) {
        let Some(n) = pick(n, self.truth.len()) else { return };
        let (attempt, booking) = self.truth.iter_mut().nth(n).unwrap();
        let attempt = *attempt;
        let (status, phase) = match (booking.status, booking.job_id.is_some()) {
            (PartnerStatus::Searching, false) => {
                booking.job_id = Some(format!("J-{attempt}"));
                (PartnerStatus::Searching, BookingPhase::Searching)
            }
            (PartnerStatus::Searching, true) if finds => {
                booking.driver_id = Some(format!("D-{attempt}"));
                (PartnerStatus::DriverAssigned, BookingPhase::DriverAssigned)
            }
            (PartnerStatus::Searching, true) => (PartnerStatus::NoDriver, BookingPhase::NoDriver),
            (PartnerStatus::DriverAssigned, _) if finds => (PartnerStatus::PickedUp, BookingPhase::PickedUp),
            (PartnerStatus::DriverAssigned, _) => (PartnerStatus::Cancelled, BookingPhase::DriverCancelled),
            (PartnerStatus::PickedUp, _) => (PartnerStatus::Completed, BookingPhase::Completed),
            _ => return,
        };
        self.becomes(attempt, status, phase);
    }

    pub(super) fn becomes(&mut self, attempt: i32, status: PartnerStatus, phase: BookingPhase) {
        let booking = self.truth.get_mut(&attempt).unwrap();
        booking.status = status;
        let JobStatus { booking_id, job_id, driver_id, .. } = booking.clone();
        self.callbacks.push(observation(ObservationSource::Callback, attempt, booking_id, job_id, driver_id, phase));
    }
}
