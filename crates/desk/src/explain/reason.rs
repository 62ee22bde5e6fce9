//! Reason for an order's state, as a value. `Display` writes English; other languages build sentences from the fields.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};
use model::{
    ids::{DriverId, PartnerName},
    order::{HoldCause, OrderStatus},
};

/// Reason for an order's state. Free text in the fields comes from people, partners or the history.
#[derive(Debug, Clone, PartialEq)]
pub enum OrderReason {
    /// A person must decide. `cause` is `None` for reviews from before causes were stored.
    Held {
        cause: Option<HoldCause>,
        reason: String,
    },
    /// The order waits for the start of its dispatch. `is_delayed`: its area had no room at the start.
    Scheduled {
        pickup_at: Option<DateTime<Utc>>,
        at: DateTime<Utc>,
        is_delayed: bool,
    },
    /// Drivers have an offer and time to answer.
    Asked {
        attempt_no: i32,
        drivers: Vec<DriverId>,
        since: DateTime<Utc>,
        until: DateTime<Utc>,
    },
    /// The first search starts at this time.
    New {
        at: DateTime<Utc>,
    },
    /// All drivers nearby have had an offer.
    SearchRestarts {
        attempts: i32,
        round: i32,
        at: DateTime<Utc>,
    },
    /// The next attempt starts soon.
    Answered {
        attempt_no: i32,
    },
    /// The attempt will be booked at a partner. `at` is `None` if its job is running.
    ToBeBooked {
        attempt_no: i32,
        partners: Vec<PartnerName>,
        at: Option<DateTime<Utc>>,
    },
    /// A booking request is running.
    BeingBooked {
        attempt_no: i32,
        partner: Option<PartnerName>,
        choice: Option<String>,
    },
    /// A booking request had no response.
    Unanswered {
        attempt_no: i32,
        partner: Option<PartnerName>,
        tries: i32,
        error: Option<String>,
        choice: Option<String>,
    },
    /// The order is booked without a known job id. `next_poll_at` is `None` if only the callback can bring it.
    WithoutJobId {
        partner: Option<PartnerName>,
        booking_id: Option<String>,
        polls: i32,
        next_poll_at: Option<DateTime<Utc>>,
        choice: Option<String>,
    },
    /// The partner is searching for a driver.
    AtPartner {
        attempt_no: i32,
        partner: Option<PartnerName>,
        job_id: Option<String>,
        until: Option<DateTime<Utc>>,
        choice: Option<String>,
    },
    /// A dispatcher must act.
    GaveUp {
        attempts: i32,
    },
    OnTheWay {
        driver: Option<DriverId>,
    },
    Aboard {
        driver: Option<DriverId>,
    },
    /// The payment of the ended order will be settled next.
    Settling,
    Ended {
        status: OrderStatus,
        at: DateTime<Utc>,
        actor: String,
        reason: String,
        detail: Option<String>,
    },
    /// The history does not have the change to this status.
    Untold {
        status: OrderStatus,
    },
}

impl fmt::Display for OrderReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { reason, .. } => write!(f, "A person must decide: {reason}."),
            Self::Asked { attempt_no, drivers, since, until } => {
                let drivers: Vec<_> = drivers.iter().map(DriverId::as_str).collect();
                let (asked, has) = match drivers[..] {
                    [driver] => (format!("driver {driver} was"), "has"),
                    _ => (format!("drivers {} were", drivers.join(", ")), "have"),
                };
                let (since, until) = (clock_time(*since), clock_time(*until));
                write!(f, "Attempt {attempt_no}: {asked} asked at {since} and {has} until {until} to answer.")
            }
            Self::Scheduled { pickup_at, at, is_delayed } => {
                let pickup = pickup_at.map(|at| format!(" for pickup at {}", clock_time(at))).unwrap_or_default();
                let at = clock_time(*at);
                if *is_delayed {
                    write!(f, "Scheduled{pickup}. Its area has no room; dispatch starts at {at} at the earliest.")
                } else {
                    write!(f, "Scheduled{pickup}: dispatch starts at {at}.")
                }
            }
            Self::New { at } => write!(f, "New: the search for a driver starts at {}.", clock_time(*at)),
            Self::SearchRestarts { attempts, round, at } => write!(
                f,
                "No driver is left to ask; after {} the search restarts (round {round}) at {}.",
                count_attempts(*attempts),
                clock_time(*at)
            ),
            Self::Answered { attempt_no } => {
                write!(f, "Attempt {attempt_no} is answered; the next attempt starts soon.")
            }
            Self::ToBeBooked { attempt_no, partners, at } => {
                let names: Vec<_> = partners.iter().map(PartnerName::as_str).collect();
                let partner = if names.is_empty() { "the partner".to_owned() } else { names.join(" or ") };
                let when = at.map_or_else(|| "when its job runs".to_owned(), |at| format!("at {}", clock_time(at)));
                write!(f, "Attempt {attempt_no} will be booked at {partner} {when}.")
            }
            Self::BeingBooked { attempt_no, partner, choice } => {
                let partner = partner.as_deref().unwrap_or("the partner");
                write!(f, "Attempt {attempt_no} is being booked at {partner}.{}", chosen(choice.as_deref()))
            }
            Self::Unanswered { attempt_no, partner, tries, error, choice } => {
                let partner = partner.as_deref().unwrap_or("the partner");
                let error = error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
                let choice = chosen(choice.as_deref());
                write!(
                    f,
                    "Attempt {attempt_no} was requested from {partner} {tries} times without a response{error}: \
                     it is requested again with the same key.{choice}"
                )
            }
            Self::WithoutJobId { partner, booking_id, polls, next_poll_at, choice } => {
                let partner = partner.as_deref().unwrap_or("the partner");
                let booking = booking_id.as_deref().unwrap_or("?");
                let asked = match next_poll_at {
                    Some(at) => format!("polled {polls} times, next at {}", clock_time(*at)),
                    None => format!("no longer polled after {polls} polls: the callback must bring it"),
                };
                let choice = chosen(choice.as_deref());
                write!(f, "Booked at {partner} as {booking}; its job id is not known yet, {asked}.{choice}")
            }
            Self::AtPartner { attempt_no, partner, job_id, until, choice } => write!(
                f,
                "{} has it as job {} and searches for a driver until {} (attempt {attempt_no}).{}",
                partner.as_deref().unwrap_or("The partner"),
                job_id.as_deref().unwrap_or("?"),
                until.map_or_else(|| "?".to_owned(), clock_time),
                chosen(choice.as_deref())
            ),
            Self::GaveUp { attempts } => {
                write!(f, "Automatic dispatch gave up after {}: a dispatcher must act.", count_attempts(*attempts))
            }
            Self::OnTheWay { driver } => write!(f, "Driver {} is on the way.", driver.as_deref().unwrap_or("?")),
            Self::Aboard { driver } => {
                write!(f, "Driver {} has the passenger on board.", driver.as_deref().unwrap_or("?"))
            }
            Self::Settling => f.write_str("The system ended it and will settle the payment next."),
            Self::Ended { status, at, actor, reason, detail } => {
                let detail = detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
                write!(f, "{status} at {} by {actor} ({reason}{detail}).", clock_time(*at))
            }
            Self::Untold { status } => write!(f, "It is {status}."),
        }
    }
}

/// Returns the reason for the choice of partner with a leading space, or an empty text if there was no choice.
fn chosen(choice: Option<&str>) -> String {
    choice.map(|choice| format!(" Chosen: {choice}.")).unwrap_or_default()
}

fn count_attempts(attempts: i32) -> String {
    if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") }
}

fn clock_time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
