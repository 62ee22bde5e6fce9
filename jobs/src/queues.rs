//! The queues. Each kind of job belongs to exactly one.

use std::time::Duration;

pub const DISPATCH: &str = "dispatch-queue";
pub const DISPATCH_TIMEOUT: &str = "dispatch-timeout-queue";
pub const JOBID_POLL: &str = "jobid-poll-queue";
pub const LIFETIME_CANCEL: &str = "lifetime-cancel-queue";
pub const COMPENSATION: &str = "compensation-queue";
pub const NOTIFY: &str = "notify-queue";
pub const PERIODIC: &str = "periodic-queue";
/// Cycles of bindings.
pub const BINDING: &str = "binding-queue";

/// All queues, in the order in which they are listed and in which a worker leases their due jobs. Orders come first, then
/// compensations, messages, periodic work and bindings.
pub const ALL: [&str; 8] =
    [DISPATCH, DISPATCH_TIMEOUT, JOBID_POLL, LIFETIME_CANCEL, COMPENSATION, NOTIFY, PERIODIC, BINDING];

/// Timeout of a run that calls a provider. The longest call takes 60 s and its margin the same. The rest is for writing
/// the claim and the answer.
pub(crate) const BINDING_JOB_TIMEOUT: Duration = Duration::from_secs(150);
