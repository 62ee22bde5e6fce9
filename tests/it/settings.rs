//! Invalid settings, secrets and environment variables fail early without disclosure.

mod doctor;
mod environment;
mod profile;
mod secrets;
mod subscriptions;
