//! Dispatch rules as values and pure functions. This crate does no I/O, reads no clock and draws no random numbers. Its
//! Cargo.toml lists no server client and no async runtime.
//!
//! * [`order`]: the order row and its states. [`decide`]: decisions on requests and timers, and the code that all
//!   decisions share. [`view`]: an order as JSON.
//! * [`policy`]: durations and options of a service type. [`ranking`]: the order in which drivers are asked, with
//!   reasons.
//! * [`fleet`]: attempts with own drivers, and the order lifetime. [`partner`]: orders that a partner serves.
//! * [`compensation`]: final status and messages of an order that the system ended.
//! * [`details`]: contents of an order, such as its destination and notes. [`order_patch`]: changes to them.
//! * [`admission`]: whether an area accepts another order. [`area`]: finds the area of a location.
//! * [`binding`]: continuous transactions of an account on a provider's server.
//! * [`plan`]: bulk staff actions, stored with their exact ids before they run.
//! * [`schedule`]: times of orders with a pickup time.
//! * [`scale`]: recommended number of `work` replicas.
//! * [`messages`]: messages to people and programs. [`texts`]: their wording by language.
//! * [`actor`]: the author of a change. [`scope`]: the orders that a member of staff may read.
//! * [`clock`], [`chance`]: time and random numbers as values for the callers of this crate.
//! * [`plain_text`], [`duration`], [`bounds`]: rules for free text, duration syntax and ranges of settings.
//!   [`field_error`]: a rule that a field violates.
//! * [`input`]: rules for external values: alphabet, length, range and unit.
//! * [`ids`]: typed ids and coordinates. [`id_prefix`]: prefix of generated ids. [`location`]: coordinates as JSON.
//!   [`json_words`]: parser errors in plain words.

pub mod actor;
pub mod admission;
pub mod area;
pub mod binding;
pub mod bounds;
pub mod chance;
pub mod clock;
pub mod compensation;
pub mod decide;
pub mod details;
pub mod distance;
pub mod duration;
pub mod field_error;
pub mod fleet;
pub mod id_prefix;
pub mod ids;
pub mod input;
pub mod json_words;
pub mod key_name;
pub mod location;
pub mod messages;
pub mod order;
pub mod order_patch;
pub mod partner;
pub mod plain_text;
pub mod plan;
pub mod policy;
pub mod ranking;
pub mod scale;
pub mod schedule;
pub mod scope;
pub mod skills;
pub mod texts;
pub mod view;
