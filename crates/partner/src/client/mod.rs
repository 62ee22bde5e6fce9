//! Calls to partners. docs/PARTNER.md describes their API.
//!
//! * [`settings`]: configured partners, and the settings that operators change at run time.
//! * [`http`]: client of the partner's API: book, query, cancel; its errors are classified by their consequence.
//! * [`overview`]: the list of partners for operators.
//! * [`throttle`]: breaker, rate and concurrency limits of every call, shared by all processes.

pub mod http;
pub mod overview;
pub mod settings;
pub mod throttle;

pub use settings::{ConfiguredPartner, PartnerRegistry};
