//! What performs the jobs: [`registry`] lists them all, and these files hold those that join several rooms.
//!
//! * [`dispatch`], [`timeout`]: an attempt, by fleet or by partner.
//! * [`notify`]: delivers one row of the outbox over one channel, again and again until it arrives or is given up.
//! * [`alarm`]: tells support about an order whose end Postgres refuses.
//! * [`escalate`]: tells again about an alert that was not acknowledged.

pub mod alarm;
pub mod callback;
pub mod dispatch;
pub mod escalate;
pub mod notify;
pub mod registry;
pub mod run_plan;
pub mod timeout;
