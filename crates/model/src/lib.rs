//! What dispatch decides, as values and functions of values. No I/O, no clock, no chance of its own: the Cargo.toml of this
//! crate lists no server's library and no runtime.
//!
//! * [`order`]: the row and its states. [`decide`]: decisions of people, timers, and what every decision shares. [`view`]: an order as JSON.
//! * [`policy`]: the durations and choices of a service type. [`ranking`]: who is asked first, and why.
//! * [`fleet`]: attempts with one's own drivers, lifetime. [`partner`]: orders that a partner serves.
//! * [`compensation`]: what it means for the money that the system ended an order.
//! * [`admission`]: whether an area takes one more order. [`area`]: which area a place lies in.
//! * [`binding`]: continuous transactions of an account on a provider's server.
//! * [`plan`]: mass actions, stored with their exact ids before they are done.
//! * [`scale`]: how many replicas of `work` are wanted.
//! * [`messages`]: what people and programs are told. [`texts`]: in which words and language.
//! * [`actor`]: by whom something was done.
//! * [`clock`], [`chance`]: time and random numbers, as what calls these functions takes them.
//! * [`plain_text`], [`duration`], [`bounds`]: texts of people, how durations are written, and what settings may be. [`field_error`]: a rule that a field breaks.
//! * [`input`]: rules of values that come from outside: alphabet, length, range and unit.
//! * [`ids`]: ids as types of their own, and places. [`location`]: places as JSON. [`json_words`]: errors of readers in plain words.

pub mod actor;
pub mod admission;
pub mod area;
pub mod binding;
pub mod bounds;
pub mod chance;
pub mod clock;
pub mod compensation;
pub mod decide;
pub mod duration;
pub mod field_error;
pub mod fleet;
pub mod ids;
pub mod input;
pub mod json_words;
pub mod key_name;
pub mod location;
pub mod messages;
pub mod order;
pub mod partner;
pub mod plain_text;
pub mod plan;
pub mod policy;
pub mod ranking;
pub mod scale;
pub mod texts;
pub mod view;
