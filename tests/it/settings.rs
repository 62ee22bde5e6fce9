//! Invalid settings, secrets and environment variables fail early without disclosure.

mod doctor;
mod environment;
mod secrets;
mod subscriptions;
