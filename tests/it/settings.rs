//! Settings, secrets and the environment fail early and give nothing away.

mod doctor;
mod environment;
mod secrets;
mod subscriptions;
