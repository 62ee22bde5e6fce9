//! Fate of a booking, drawn when it is made. Pure.
//!
//! A fate depends only on the seed and the reference. The order of bookings and the number of requests do not change
//! it.

use std::time::Duration;

use rand::RngExt;

use super::knobs::PartnerKnobs;
use crate::seeded_rng::ChoiceSeed;

/// Event that a callback reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BookingEvent {
    JobIdAssigned,
    DriverAssigned,
    NoDriver,
    DriverCancelled,
    PickedUp,
    Completed,
    BookingCancelled,
}

impl BookingEvent {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::JobIdAssigned => "job_id_assigned",
            Self::DriverAssigned => "driver_assigned",
            Self::NoDriver => "no_driver",
            Self::DriverCancelled => "driver_cancelled",
            Self::PickedUp => "picked_up",
            Self::Completed => "completed",
            Self::BookingCancelled => "booking_cancelled",
        }
    }
}

/// Events of a booking that is not cancelled over the API.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BookingFate {
    /// Events in order, with their time after the booking.
    pub(super) steps: Vec<(Duration, BookingEvent)>,
    pub(super) job_id: String,
    pub(super) driver_id: String,
}

impl BookingFate {
    pub(super) fn draw_fate(seed: u64, reference: &str, knobs: &PartnerKnobs) -> Self {
        let mut rng = ChoiceSeed::new(seed, &["fate", reference]).into_rng();
        // All values are always drawn, so that changing one knob does not change the others.
        let has_job_id = knobs.job_id_rate.draw_outcome(&mut rng);
        let has_driver = knobs.driver_rate.draw_outcome(&mut rng);
        let driver_cancels = knobs.driver_cancel_rate.draw_outcome(&mut rng);
        let job_id = knobs.job_id_delay.draw_duration(&mut rng);
        let driver = job_id + knobs.driver_delay.draw_duration(&mut rng);
        let no_driver = job_id + knobs.no_driver_delay.draw_duration(&mut rng);
        let approach = knobs.pickup_delay.draw_duration(&mut rng);
        let driver_cancel = driver + approach.mul_f64(rng.random());
        let pickup = driver + approach;
        let completion = pickup + knobs.trip_duration.draw_duration(&mut rng);
        let driver_id = format!("D-{:05}", rng.random_range(0..100_000));

        let mut steps = Vec::with_capacity(4);
        if has_job_id {
            steps.push((job_id, BookingEvent::JobIdAssigned));
            if has_driver {
                steps.push((driver, BookingEvent::DriverAssigned));
                if driver_cancels {
                    steps.push((driver_cancel, BookingEvent::DriverCancelled));
                } else {
                    steps.push((pickup, BookingEvent::PickedUp));
                    steps.push((completion, BookingEvent::Completed));
                }
            } else {
                steps.push((no_driver, BookingEvent::NoDriver));
            }
        }
        Self { steps, job_id: job_id_of(seed, reference), driver_id }
    }
}

/// Returns the booking number for a reference.
pub(super) fn booking_number(seed: u64, reference: &str) -> u64 {
    ChoiceSeed::new(seed, &["booking", reference]).random_number()
}

/// Returns the booking id for a booking number.
pub(super) fn booking_id(number: u64) -> String {
    format!("B-{number:016x}")
}

/// Returns the booking number in a booking id.
pub(super) fn parse_booking_id(id: &str) -> Option<u64> {
    let digits = id.strip_prefix("B-").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// Returns the job id of the booking with this reference.
pub(super) fn job_id_of(seed: u64, reference: &str) -> String {
    format!("J-{:016x}", ChoiceSeed::new(seed, &["job", reference]).random_number())
}

/// Whether and how the callback of one event is delivered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CallbackTravel {
    pub(super) event_id: String,
    /// Whether the callback is sent.
    pub(super) sent: bool,
    pub(super) delay: Duration,
    /// Delay between the first delivery and a repeated one, if the callback is sent twice.
    pub(super) doubled: Option<Duration>,
    /// Whether a forged callback is sent immediately before it.
    pub(super) forged: bool,
    pub(super) unknown_booking: bool,
    /// Delay after delivery until a callback with a foreign job id is sent.
    pub(super) foreign_job_id: Option<Duration>,
}

impl CallbackTravel {
    pub(super) fn draw_travel(seed: u64, reference: &str, event: BookingEvent, knobs: &PartnerKnobs) -> Self {
        let mut rng = ChoiceSeed::new(seed, &["callback", reference, event.name()]).into_rng();
        let with_job_id = event == BookingEvent::JobIdAssigned;
        let rate = if with_job_id { knobs.job_id_callback_rate } else { knobs.callback_rate };
        let event_id = format!("E-{:016x}", rng.random::<u64>());
        let sent = rate.draw_outcome(&mut rng);
        let delay = knobs.callback_delay.draw_duration(&mut rng);
        let doubled = knobs.doubled_callback_rate.draw_outcome(&mut rng);
        let forged = knobs.bad_signature_rate.draw_outcome(&mut rng);
        let unknown_booking = knobs.unknown_booking_rate.draw_outcome(&mut rng);
        let foreign = knobs.foreign_job_id_rate.draw_outcome(&mut rng) && with_job_id;
        let [later, much_later] = [(); 2].map(|()| knobs.callback_delay.draw_duration(&mut rng));
        Self {
            event_id,
            sent,
            delay,
            doubled: doubled.then_some(later),
            forged,
            unknown_booking,
            foreign_job_id: foreign.then_some(much_later),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::EventRate;

    fn events(knobs: &PartnerKnobs, n: u32) -> Vec<BookingEvent> {
        BookingFate::draw_fate(1, &format!("ORD-{n}:1"), knobs).steps.into_iter().map(|(_, event)| event).collect()
    }

    #[test]
    fn fate_depends_only_on_seed_and_reference() {
        let knobs = PartnerKnobs::default();
        let fate = BookingFate::draw_fate(1, "ORD-1:1", &knobs);
        assert_eq!(fate, BookingFate::draw_fate(1, "ORD-1:1", &knobs));
        for other in [BookingFate::draw_fate(2, "ORD-1:1", &knobs), BookingFate::draw_fate(1, "ORD-1:2", &knobs)] {
            assert!(fate.job_id != other.job_id && fate.steps != other.steps);
        }
        // A knob changes only the part of the fate that it controls.
        let without_driver = PartnerKnobs { driver_rate: EventRate::NEVER, ..knobs };
        assert_eq!(BookingFate::draw_fate(1, "ORD-1:1", &without_driver).steps[0], fate.steps[0]);
    }

    #[test]
    fn bookings_end_in_one_of_four_ways() {
        use BookingEvent::{Completed, DriverAssigned, DriverCancelled, JobIdAssigned, NoDriver, PickedUp};
        let sure = PartnerKnobs {
            driver_rate: EventRate::ALWAYS,
            driver_cancel_rate: EventRate::NEVER,
            ..PartnerKnobs::default()
        };
        for n in 0..50 {
            assert_eq!(events(&sure, n), [JobIdAssigned, DriverAssigned, PickedUp, Completed]);
            let unlucky = PartnerKnobs { driver_rate: EventRate::NEVER, ..sure.clone() };
            assert_eq!(events(&unlucky, n), [JobIdAssigned, NoDriver]);
            let deserted = PartnerKnobs { driver_cancel_rate: EventRate::ALWAYS, ..sure.clone() };
            assert_eq!(events(&deserted, n), [JobIdAssigned, DriverAssigned, DriverCancelled]);
            assert_eq!(events(&PartnerKnobs { job_id_rate: EventRate::NEVER, ..sure.clone() }, n), []);
        }
    }

    #[test]
    fn booking_events_follow_the_rates() {
        let knobs = PartnerKnobs { driver_rate: "0.7".parse().unwrap(), ..PartnerKnobs::default() };
        let found = (0..2000).filter(|n| events(&knobs, *n).contains(&BookingEvent::DriverAssigned)).count();
        assert!((1330..1470).contains(&found), "{found}");
        let sent =
            |event| (0..2000).filter(|n| CallbackTravel::draw_travel(1, &format!("O:{n}"), event, &knobs).sent).count();
        assert!((1850..1950).contains(&sent(BookingEvent::JobIdAssigned)));
    }

    #[test]
    fn fate_steps_are_sorted_by_time() {
        for n in 0..500 {
            let steps = BookingFate::draw_fate(3, &format!("ORD-{n}:1"), &PartnerKnobs::default()).steps;
            assert!(steps.is_sorted_by_key(|(at, _)| *at), "{steps:?}");
        }
    }
}
