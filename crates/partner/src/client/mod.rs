//! How partners are called. Their wire is described in docs/PARTNER.md.
//!
//! * [`settings`]: the configured partners, ready to be called, and what operators set at run time.
//! * [`http`]: the partner's API: book, ask, cancel; its errors by what they mean for us.
//! * [`overview`]: partners as operators list them.
//! * [`throttle`]: breaker, rate and concurrency around every call, shared by the fleet.

pub mod http;
pub mod overview;
pub mod settings;
pub mod throttle;

pub use settings::{ConfiguredPartner, PartnerRegistry};
