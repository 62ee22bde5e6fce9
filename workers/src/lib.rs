//! The processors: one file per job, with its whole handler. [`registry`] lists them all; [`worker`] is the process
//! that runs them. Each file names the requirement of its job. The job's contract has the same file name in `jobs`.

// The futures of handlers are nested deeper than the default limit.
#![recursion_limit = "256"]

pub mod alarm;
mod binding_run;
pub mod callback;
pub mod cancel_booking;
pub mod compensate;
pub mod cycle;
pub mod details;
pub mod dispatch;
pub mod escalate;
pub mod lifetime;
pub mod notify;
pub mod otp;
pub mod poll;
pub mod refund;
pub mod registry;
pub mod remind;
pub mod run_plan;
pub mod settle;
pub mod tick;
pub mod timeout;
pub mod trip;
pub mod warn;
pub mod wave;
pub mod worker;
