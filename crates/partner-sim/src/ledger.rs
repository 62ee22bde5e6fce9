//! Bookings of the partner. Pure: the caller passes the time.
//!
//! A booking's number follows from its reference, so one map finds it by either. Finished bookings are removed when the
//! caller asks for it; counters elsewhere keep their values.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::fate::{BookingEvent, BookingFate};

/// Maximum number of records. More can be open only if no call ends them.
const MOST_RECORDS: usize = 500_000;

/// Request about a booking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BookingOperation {
    Book,
    Poll,
    Cancel,
    Details,
}

impl BookingOperation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Book => "book",
            Self::Poll => "poll",
            Self::Cancel => "cancel",
            Self::Details => "details",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SimulatedStatus {
    Searching,
    DriverAssigned,
    PickedUp,
    Completed,
    Cancelled,
    NoDriver,
}

impl SimulatedStatus {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Searching => "searching",
            Self::DriverAssigned => "driver_assigned",
            Self::PickedUp => "picked_up",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::NoDriver => "no_driver",
        }
    }

    fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::NoDriver)
    }

    /// Returns the status after an event.
    fn after_event(self, event: BookingEvent) -> Self {
        match event {
            BookingEvent::JobIdAssigned => self,
            BookingEvent::DriverAssigned => Self::DriverAssigned,
            BookingEvent::NoDriver => Self::NoDriver,
            BookingEvent::PickedUp => Self::PickedUp,
            BookingEvent::Completed => Self::Completed,
            BookingEvent::DriverCancelled | BookingEvent::BookingCancelled => Self::Cancelled,
        }
    }
}

/// A booking and its fate.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SimulatedBooking {
    pub(super) reference: String,
    /// Hash of the request, to recognize a repeated one.
    pub(super) fingerprint: u64,
    pub(super) booked_at: Instant,
    pub(super) status: SimulatedStatus,
    pub(super) has_job_id: bool,
    pub(super) has_driver: bool,
    pub(super) over_since: Option<Instant>,
    pub(super) fate: BookingFate,
    /// Latest contents that were sent for it.
    pub(super) details: Option<Value>,
    /// Number of performed steps of the fate.
    done: usize,
}

impl SimulatedBooking {
    pub(super) fn job_id(&self) -> Option<&str> {
        self.has_job_id.then_some(self.fate.job_id.as_str())
    }

    pub(super) fn driver_id(&self) -> Option<&str> {
        self.has_driver.then_some(self.fate.driver_id.as_str())
    }

    /// Returns the time of the next step, counted from the booking.
    pub(super) fn next_step(&self) -> Option<Duration> {
        let (at, _) = self.fate.steps.get(self.done)?;
        (!self.status.is_over()).then_some(*at)
    }

    fn apply_event(&mut self, event: BookingEvent, now: Instant) {
        self.status = self.status.after_event(event);
        if self.status.is_over() {
            self.over_since = Some(now);
        }
        self.has_job_id |= event == BookingEvent::JobIdAssigned;
        self.has_driver |= event == BookingEvent::DriverAssigned;
    }
}

/// Request counts of one reference, and its booking if there is one.
#[derive(Debug, Default)]
struct BookingRecord {
    asked: [u32; 4],
    booking: Option<SimulatedBooking>,
}

#[derive(Debug, Default)]
pub(super) struct BookingLedger {
    records: HashMap<u64, BookingRecord>,
    open: BTreeSet<u64>,
}

/// Error for a ledger without room for another booking.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LedgerFull;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum BookOutcome {
    New,
    Again,
    /// The key was used before with another body.
    Differs,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum CancelOutcome {
    Now,
    Already,
    /// A passenger is or was aboard.
    TripInProgress,
    Unknown,
}

impl BookingLedger {
    /// Counts a booking request. Returns the number of booking requests for the reference so far, and whether this is
    /// the first request for it.
    pub(super) fn count_booking_request(&mut self, number: u64) -> Result<(u32, bool), LedgerFull> {
        let known = self.records.contains_key(&number);
        if !known && self.records.len() >= MOST_RECORDS {
            return Err(LedgerFull);
        }
        let record = self.records.entry(number).or_default();
        Ok((record.count_operation(BookingOperation::Book), !known))
    }

    /// Counts another request. Returns the reference, and the number of such requests so far. Returns `None` if the
    /// booking does not exist.
    pub(super) fn count_request(&mut self, number: u64, operation: BookingOperation) -> Option<(String, u32)> {
        let record = self.records.get_mut(&number)?;
        let reference = record.booking.as_ref()?.reference.clone();
        Some((reference, record.count_operation(operation)))
    }

    /// Makes a booking, or returns how it relates to the existing one. Draws `fate` only for a new booking.
    pub(super) fn book_reference(
        &mut self,
        number: u64,
        reference: &str,
        fingerprint: u64,
        now: Instant,
        fate: impl FnOnce() -> BookingFate,
    ) -> BookOutcome {
        let record = self.records.entry(number).or_default();
        if let Some(booking) = &record.booking {
            return if booking.fingerprint == fingerprint { BookOutcome::Again } else { BookOutcome::Differs };
        }
        record.booking = Some(SimulatedBooking {
            reference: reference.to_owned(),
            fingerprint,
            booked_at: now,
            status: SimulatedStatus::Searching,
            has_job_id: false,
            has_driver: false,
            over_since: None,
            fate: fate(),
            details: None,
            done: 0,
        });
        self.open.insert(number);
        BookOutcome::New
    }

    pub(super) fn find_booking(&self, number: u64) -> Option<&SimulatedBooking> {
        self.records.get(&number)?.booking.as_ref()
    }

    pub(super) fn cancel_booking(&mut self, number: u64, now: Instant) -> CancelOutcome {
        let Some(booking) = self.records.get_mut(&number).and_then(|record| record.booking.as_mut()) else {
            return CancelOutcome::Unknown;
        };
        match booking.status {
            SimulatedStatus::Cancelled => CancelOutcome::Already,
            SimulatedStatus::PickedUp | SimulatedStatus::Completed => CancelOutcome::TripInProgress,
            SimulatedStatus::Searching | SimulatedStatus::DriverAssigned | SimulatedStatus::NoDriver => {
                booking.apply_event(BookingEvent::BookingCancelled, now);
                self.open.remove(&number);
                CancelOutcome::Now
            }
        }
    }

    /// Stores the contents of a booking. Returns whether it is before the pickup.
    pub(super) fn set_details(&mut self, number: u64, details: Value) -> bool {
        let booking = self.records.get_mut(&number).and_then(|record| record.booking.as_mut());
        let is_open = |b: &&mut SimulatedBooking| {
            matches!(b.status, SimulatedStatus::Searching | SimulatedStatus::DriverAssigned)
        };
        let Some(booking) = booking.filter(is_open) else { return false };
        booking.details = Some(details);
        true
    }

    /// Performs the next step of a booking, unless the booking has ended.
    pub(super) fn take_step(&mut self, number: u64, now: Instant) -> Option<BookingEvent> {
        let booking = self.records.get_mut(&number)?.booking.as_mut()?;
        booking.next_step()?;
        let (_, event) = *booking.fate.steps.get(booking.done)?;
        booking.done += 1;
        booking.apply_event(event, now);
        if booking.status.is_over() {
            self.open.remove(&number);
        }
        Some(event)
    }

    /// Removes the booking if it ended at least `keep` ago, or the record if no booking was made.
    pub(super) fn forget_finished(&mut self, number: u64, now: Instant, keep: Duration) {
        let over = |since: Instant| now.saturating_duration_since(since) >= keep;
        if self.records.get(&number).is_some_and(|r| r.booking.as_ref().is_none_or(|b| b.over_since.is_some_and(over)))
        {
            self.records.remove(&number);
        }
    }

    /// Returns the numbers of all open bookings. A booking is open until it is completed or cancelled, or ends without
    /// a driver.
    pub(super) fn open_bookings(&self) -> &BTreeSet<u64> {
        &self.open
    }

    /// Returns the number of records: open bookings, and finished ones that are not removed yet.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

impl BookingRecord {
    fn count_operation(&mut self, operation: BookingOperation) -> u32 {
        let asked = &mut self.asked[operation as usize];
        *asked = asked.saturating_add(1);
        *asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{knobs::PartnerKnobs, values::EventRate};

    fn ledger(knobs: &PartnerKnobs) -> BookingLedger {
        let mut ledger = BookingLedger::default();
        assert_eq!(ledger.count_booking_request(7), Ok((1, true)));
        assert_eq!(
            ledger.book_reference(7, "O:1", 1, Instant::now(), || BookingFate::draw_fate(1, "O:1", knobs)),
            BookOutcome::New
        );
        ledger
    }

    fn lucky() -> PartnerKnobs {
        PartnerKnobs { driver_rate: EventRate::ALWAYS, driver_cancel_rate: EventRate::NEVER, ..PartnerKnobs::default() }
    }

    fn status(ledger: &BookingLedger) -> SimulatedStatus {
        ledger.find_booking(7).unwrap().status
    }

    #[test]
    fn repeated_booking_is_made_once() {
        let mut ledger = ledger(&lucky());
        let fate = || panic!("a booking has one fate");
        assert_eq!(ledger.book_reference(7, "O:1", 1, Instant::now(), fate), BookOutcome::Again);
        assert_eq!(ledger.book_reference(7, "O:1", 2, Instant::now(), fate), BookOutcome::Differs);
        assert_eq!(ledger.count_booking_request(7), Ok((2, false)));
        assert_eq!(ledger.open_bookings().len(), 1);
    }

    #[test]
    fn booking_runs_its_steps_and_ends() {
        let mut ledger = ledger(&lucky());
        let mut seen = Vec::new();
        while let Some(event) = ledger.take_step(7, Instant::now()) {
            seen.push((event, status(&ledger)));
        }
        let wanted = [
            (BookingEvent::JobIdAssigned, SimulatedStatus::Searching),
            (BookingEvent::DriverAssigned, SimulatedStatus::DriverAssigned),
            (BookingEvent::PickedUp, SimulatedStatus::PickedUp),
            (BookingEvent::Completed, SimulatedStatus::Completed),
        ];
        assert_eq!(seen, wanted);
        assert!(ledger.open_bookings().is_empty());
        assert_eq!(ledger.cancel_booking(7, Instant::now()), CancelOutcome::TripInProgress);
    }

    #[test]
    fn cancelled_booking_has_no_further_steps() {
        let mut ledger = ledger(&lucky());
        ledger.take_step(7, Instant::now());
        assert_eq!(
            [ledger.cancel_booking(7, Instant::now()), ledger.cancel_booking(7, Instant::now())],
            [CancelOutcome::Now, CancelOutcome::Already]
        );
        assert_eq!((ledger.take_step(7, Instant::now()), status(&ledger)), (None, SimulatedStatus::Cancelled));
        assert_eq!(ledger.cancel_booking(8, Instant::now()), CancelOutcome::Unknown);
    }

    #[test]
    fn cancel_is_refused_after_pickup() {
        let mut ledger = ledger(&lucky());
        for _ in 0..2 {
            ledger.take_step(7, Instant::now());
        }
        assert_eq!(status(&ledger), SimulatedStatus::DriverAssigned);
        ledger.take_step(7, Instant::now());
        assert_eq!(ledger.cancel_booking(7, Instant::now()), CancelOutcome::TripInProgress);
    }

    #[test]
    fn only_old_finished_bookings_are_removed() {
        let (mut ledger, now, keep) = (ledger(&lucky()), Instant::now(), Duration::from_secs(60));
        ledger.forget_finished(7, now + 9 * keep, keep);
        assert_eq!(ledger.len(), 1, "it is open");
        ledger.cancel_booking(7, now);
        ledger.forget_finished(7, now + keep / 2, keep);
        assert_eq!(ledger.len(), 1, "it may still be asked about");
        ledger.forget_finished(7, now + keep, keep);
        assert_eq!(ledger.len(), 0);
        // A booking request that never led to a booking.
        assert_eq!(ledger.count_booking_request(8), Ok((1, true)));
        ledger.forget_finished(8, now, keep);
        assert_eq!((ledger.len(), ledger.count_request(8, BookingOperation::Poll)), (0, None));
    }
}
