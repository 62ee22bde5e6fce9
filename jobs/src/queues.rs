//! The queues, as operators know them. A kind of job belongs to exactly one.

pub const DISPATCH: &str = "dispatch-queue";
pub const DISPATCH_TIMEOUT: &str = "dispatch-timeout-queue";
pub const JOBID_POLL: &str = "jobid-poll-queue";
pub const LIFETIME_CANCEL: &str = "lifetime-cancel-queue";
pub const COMPENSATION: &str = "compensation-queue";
pub const NOTIFY: &str = "notify-queue";
pub const PERIODIC: &str = "periodic-queue";
/// Cycles of bindings. Not in [`ALL`] before a worker serves it.
pub const BINDING: &str = "binding-queue";

/// All of them, in the order in which they are listed.
pub const ALL: [&str; 7] = [DISPATCH, DISPATCH_TIMEOUT, JOBID_POLL, LIFETIME_CANCEL, COMPENSATION, NOTIFY, PERIODIC];
