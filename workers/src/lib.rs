//! The processors: one file for each job, with its whole handler. [`registry`] lists them all; [`worker`] is the process that runs them.
//! Each file names the requirement that its job comes from. The job's contract has the same file name in `jobs`.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod alarm;
mod binding_run;
pub mod callback;
pub mod cancel_booking;
pub mod compensate;
pub mod cycle;
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
pub mod worker;
