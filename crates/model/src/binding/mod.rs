//! Bindings: the row of one account on one server of a provider, its states, and all decisions on it, as values.
//! Design: docs/design/bindings.md.
//!
//! * [`ids`], [`state`]: ids and enums of rows.
//! * [`config`]: settings of a binding, with bounds and defaults.
//! * [`row`]: the binding row. [`transaction`]: the header of one cycle, and the records of its calls.
//! * [`call`]: a call to the provider. [`answer`]: the provider's answers, parsed from responses.
//! * [`change`]: the result of a decision, and its effect on the row.
//! * [`commands`]: decisions on commands from people and programs. [`verb`]: commands for many bindings. [`otp`]:
//!   decisions on a submitted OTP.
//! * [`claim`]: whether a job may call the provider now, and what is written before the call.
//! * [`outcome`]: decisions on answers. [`deadlines`]: decisions on expired deadlines.
//! * [`timers`]: the job that a binding must have, derived from its row, and the job that makes its open call.
//!
//! A call is open from its claim until its answer is written or `call_until` has passed. The row holds one call, so a
//! binding cannot have two.

pub mod answer;
pub mod call;
pub mod change;
pub mod claim;
pub mod commands;
pub mod config;
pub mod deadlines;
pub mod ids;
pub mod otp;
pub mod outcome;
pub mod row;
pub mod state;
pub mod timers;
pub mod transaction;
pub mod verb;

pub use answer::{FailureReason, ProviderAnswer};
pub use call::{CallAction, ProviderCall};
pub use change::{BindingChange, BindingEvent, BindingEventKind, BindingNotice, DecisionMoment};
pub use claim::{CallClaim, CallRules, ClaimDecision, decide_claim, decide_settle};
pub use commands::{BindingCommand, BindingConflict, CommandOutcome, decide_command};
pub use config::{BindingConfig, IntervalFrom, InvalidBindingConfig, TimeoutPolicy};
pub use deadlines::decide_deadline;
pub use ids::{AccountId, ServerId, TrxId};
pub use jobs::BindingId;
pub use otp::{OtpSubmission, decide_otp};
pub use outcome::{AnswerDecision, decide_answer};
pub use row::Binding;
pub use state::{BindingPhase, BindingState, StopReason};
pub use timers::{BindingTimer, calling_job, derive, settle_timer};
pub use transaction::{CallEnding, CallOpening, HeaderChange, TransactionHeader, TransactionStatus};
pub use verb::BindingVerb;
