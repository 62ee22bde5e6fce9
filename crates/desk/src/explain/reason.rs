//! Why an order is as it is, as a value. Its text is English; who speaks another language makes sentences of the parts.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};
use model::{
    ids::{DriverId, PartnerName},
    order::{HoldCause, OrderStatus},
};

/// Why an order is as it is. What free text it holds was written by people, partners or the history.
#[derive(Debug, Clone, PartialEq)]
pub enum OrderReason {
    /// A person must decide. `cause`: `None` of reviews that began before causes were kept.
    Held {
        cause: Option<HoldCause>,
        reason: String,
    },
    /// Drivers were asked and have time to answer.
    Asked {
        attempt_no: i32,
        drivers: Vec<DriverId>,
        since: DateTime<Utc>,
        until: DateTime<Utc>,
    },
    /// The first search begins at this time.
    New {
        at: DateTime<Utc>,
    },
    /// All drivers near were asked.
    SearchRestarts {
        attempts: i32,
        round: i32,
        at: DateTime<Utc>,
    },
    /// The next attempt is about to begin.
    Answered {
        attempt_no: i32,
    },
    /// `at`: `None` once its job runs.
    ToBeBooked {
        attempt_no: i32,
        partners: Vec<PartnerName>,
        at: Option<DateTime<Utc>>,
    },
    /// The request is under way.
    BeingBooked {
        attempt_no: i32,
        partner: Option<PartnerName>,
        choice: Option<String>,
    },
    /// The partner was asked and no answer came.
    Unanswered {
        attempt_no: i32,
        partner: Option<PartnerName>,
        tries: i32,
        error: Option<String>,
        choice: Option<String>,
    },
    /// Booked, and the job id is not known. `next_poll_at`: `None`, the callback must bring it.
    WithoutJobId {
        partner: Option<PartnerName>,
        booking_id: Option<String>,
        polls: i32,
        next_poll_at: Option<DateTime<Utc>>,
        choice: Option<String>,
    },
    /// The partner looks for a driver.
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
    /// What the end means for the payment is about to be settled.
    Settling,
    Ended {
        status: OrderStatus,
        at: DateTime<Utc>,
        actor: String,
        reason: String,
        detail: Option<String>,
    },
    /// The history does not say how it came to be so.
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
            Self::New { at } => write!(f, "New: the search for a driver begins at {}.", clock_time(*at)),
            Self::SearchRestarts { attempts, round, at } => write!(
                f,
                "No driver is left to ask; after {} the search restarts (round {round}) at {}.",
                count_attempts(*attempts),
                clock_time(*at)
            ),
            Self::Answered { attempt_no } => {
                write!(f, "Attempt {attempt_no} has its answer; the next is about to begin.")
            }
            Self::ToBeBooked { attempt_no, partners, at } => {
                let names: Vec<_> = partners.iter().map(PartnerName::as_str).collect();
                let partner = if names.is_empty() { "the partner".to_owned() } else { names.join(" or ") };
                let when = at.map_or_else(|| "once its job runs".to_owned(), |at| format!("at {}", clock_time(at)));
                write!(f, "Attempt {attempt_no} is to be booked at {partner} {when}.")
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
                    "Attempt {attempt_no} was asked of {partner} {tries} times and the answer did not come{error}: \
                     it is asked again under the same key.{choice}"
                )
            }
            Self::WithoutJobId { partner, booking_id, polls, next_poll_at, choice } => {
                let partner = partner.as_deref().unwrap_or("the partner");
                let booking = booking_id.as_deref().unwrap_or("?");
                let asked = match next_poll_at {
                    Some(at) => format!("asked for {polls} times and again at {}", clock_time(*at)),
                    None => format!("and after {polls} times it is not asked for: the callback must bring it"),
                };
                let choice = chosen(choice.as_deref());
                write!(f, "Booked at {partner} as {booking}; its job id is not known yet, {asked}.{choice}")
            }
            Self::AtPartner { attempt_no, partner, job_id, until, choice } => write!(
                f,
                "{} has it as job {} and looks for a driver until {} (attempt {attempt_no}).{}",
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
                write!(f, "Driver {} has the passenger aboard.", driver.as_deref().unwrap_or("?"))
            }
            Self::Settling => {
                f.write_str("The system ended it, and is about to settle what that means for the payment.")
            }
            Self::Ended { status, at, actor, reason, detail } => {
                let detail = detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
                write!(f, "{status} at {} by {actor} ({reason}{detail}).", clock_time(*at))
            }
            Self::Untold { status } => write!(f, "It is {status}."),
        }
    }
}

/// Why a partner was chosen, with a space before it; empty where there was no choice.
fn chosen(choice: Option<&str>) -> String {
    choice.map(|choice| format!(" Chosen: {choice}.")).unwrap_or_default()
}

fn count_attempts(attempts: i32) -> String {
    if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") }
}

fn clock_time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
