//! Decisions on commands from people and programs.

use chrono::{DateTime, Utc};

use super::{
    Binding, BindingChange, BindingConfig, BindingEventKind, BindingPhase, BindingState, InvalidBindingConfig,
    ServerId, StopReason, TransactionStatus, TrxId,
};
use crate::actor::Actor;

#[derive(Debug, Clone, PartialEq)]
pub enum BindingCommand {
    Start,
    Pause,
    Resume,
    Stop {
        /// `ManualStop`, or `ServerDisabled`.
        reason: StopReason,
    },
    Delete,
    /// `None` keeps the field unchanged.
    Patch {
        server_id: Option<ServerId>,
        config: Option<BindingConfig>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum CommandOutcome {
    Write(Box<BindingChange>),
    /// The binding is already in the requested state; the text names it.
    NoOp(&'static str),
    Conflict(BindingConflict),
}

impl CommandOutcome {
    /// Adds a note to the events: as their detail, or in `given_reason` if they have a detail.
    #[must_use]
    pub fn with_note(mut self, note: &str) -> Self {
        if let Self::Write(change) = &mut self {
            for event in &mut change.events {
                let place = if event.detail.is_none() { &mut event.detail } else { &mut event.given_reason };
                *place = Some(note.to_owned());
            }
        }
        self
    }
}

/// Reason why a command is refused. The text names the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum BindingConflict {
    #[error("the binding was deleted")]
    #[strum(serialize = "BINDING_DELETED")]
    Deleted,
    #[error("the binding is STOPPING: wait until its open call has ended")]
    #[strum(serialize = "BINDING_STOPPING")]
    Stopping,
    #[error("the binding is PAUSED: resume it")]
    #[strum(serialize = "BINDING_PAUSED")]
    Paused,
    #[error("the binding is STOPPED: start it")]
    #[strum(serialize = "BINDING_NOT_RUNNING")]
    NotRunning,
    #[error("the binding is {state} and {phase}: stop it, and wait until its transaction is final")]
    #[strum(serialize = "BINDING_NOT_AT_REST")]
    NotAtRest { state: BindingState, phase: BindingPhase },
    #[error("{0} transactions of the binding are UNRESOLVED: wait until they are final")]
    #[strum(serialize = "BINDING_UNRESOLVED")]
    Unresolved(i32),
    #[error(transparent)]
    #[strum(serialize = "INVALID")]
    BadConfig(#[from] InvalidBindingConfig),
    /// Answered with 404.
    #[error("the binding has no transaction {0}")]
    #[strum(serialize = "TRANSACTION_NOT_FOUND")]
    ForeignTransaction(TrxId),
    /// Answered with 409.
    #[error("an OTP is already stored: wait for its result")]
    OtpStored,
    /// Answered with 409.
    #[error("no OTP is requested now: the transaction is {0}")]
    OtpNotWanted(BindingPhase),
    /// Answered with 410.
    #[error("no OTP is accepted anymore: its time is over, or the transaction has ended")]
    OtpOver,
}

impl BindingConflict {
    pub fn error_code(&self) -> &'static str {
        self.into()
    }
}

pub fn decide_command(
    binding: &Binding,
    command: &BindingCommand,
    actor: &Actor,
    now: DateTime<Utc>,
) -> CommandOutcome {
    if binding.deleted_at.is_some() {
        let again = *command == BindingCommand::Delete;
        return if again { CommandOutcome::NoOp("deleted already") } else { refuse_for(BindingConflict::Deleted) };
    }
    let change = || BindingChange::new(binding, actor, now);
    match (command, binding.state) {
        (BindingCommand::Start, BindingState::Stopped) => start_binding(change()),
        (BindingCommand::Start, BindingState::Running) => CommandOutcome::NoOp("RUNNING already"),
        (BindingCommand::Start, BindingState::Paused) => refuse_for(BindingConflict::Paused),
        (BindingCommand::Pause, BindingState::Running) => {
            move_state(change(), BindingState::Paused, BindingEventKind::Paused)
        }
        (BindingCommand::Pause, BindingState::Paused) => CommandOutcome::NoOp("PAUSED already"),
        (BindingCommand::Resume, BindingState::Paused) => {
            let mut change = change();
            if binding.is_between_cycles() {
                // After a pause of any length, one cycle is due.
                change.binding.next_at = Some(binding.next_at.map_or(now, |at| at.max(now)));
            }
            move_state(change, BindingState::Running, BindingEventKind::Resumed)
        }
        (BindingCommand::Resume, BindingState::Running) => CommandOutcome::NoOp("RUNNING already"),
        (BindingCommand::Pause | BindingCommand::Resume, BindingState::Stopped) => {
            refuse_for(BindingConflict::NotRunning)
        }
        (BindingCommand::Start | BindingCommand::Pause | BindingCommand::Resume, BindingState::Stopping) => {
            refuse_for(BindingConflict::Stopping)
        }
        (BindingCommand::Stop { .. }, BindingState::Stopped) => CommandOutcome::NoOp("STOPPED already"),
        (BindingCommand::Stop { .. }, BindingState::Stopping) => CommandOutcome::NoOp("STOPPING already"),
        (BindingCommand::Stop { reason }, BindingState::Running | BindingState::Paused) => {
            stop_binding(change(), *reason)
        }
        (BindingCommand::Delete, _) => delete_binding(change()),
        (BindingCommand::Patch { server_id, config }, _) => {
            patch_binding(change(), server_id.as_ref(), config.as_ref())
        }
    }
}

pub(super) fn refuse_for(conflict: BindingConflict) -> CommandOutcome {
    CommandOutcome::Conflict(conflict)
}

fn write_change(change: BindingChange) -> CommandOutcome {
    CommandOutcome::Write(Box::new(change))
}

fn move_state(mut change: BindingChange, to: BindingState, kind: BindingEventKind) -> CommandOutcome {
    change.binding.state = to;
    change.record_event(kind, None);
    write_change(change)
}

fn start_binding(mut change: BindingChange) -> CommandOutcome {
    (change.binding.reason, change.binding.failures) = (None, 0);
    if change.binding.is_between_cycles() {
        change.binding.next_at = Some(change.at);
    }
    move_state(change, BindingState::Running, BindingEventKind::Started)
}

/// Stops the binding. With an open call, the stop waits for the end of the call. The wait for an OTP ends.
fn stop_binding(mut change: BindingChange, reason: StopReason) -> CommandOutcome {
    change.binding.reason = Some(reason);
    if change.binding.has_open_call() {
        return move_state(change, BindingState::Stopping, BindingEventKind::Stopping);
    }
    if change.binding.phase == BindingPhase::WaitingOtp {
        if change.binding.has_tried_otp() {
            // The OTP may have been accepted, so the provider is asked for the status.
            change.count_otp();
            change.binding.phase = BindingPhase::Processing;
        } else {
            change.finish_cycle(TransactionStatus::Gagal, Some(reason.to_string()), None);
        }
    }
    change.force_stop(reason);
    write_change(change)
}

fn delete_binding(mut change: BindingChange) -> CommandOutcome {
    if let Some(conflict) = find_unrest(&change.binding) {
        return refuse_for(conflict);
    }
    if change.binding.unresolved > 0 {
        return refuse_for(BindingConflict::Unresolved(change.binding.unresolved));
    }
    change.binding.deleted_at = Some(change.at);
    change.record_event(BindingEventKind::Deleted, None);
    write_change(change)
}

fn patch_binding(
    mut change: BindingChange,
    server_id: Option<&ServerId>,
    config: Option<&BindingConfig>,
) -> CommandOutcome {
    let mut changed = Vec::new();
    if let Some(server_id) = server_id.filter(|id| **id != change.binding.server_id) {
        if let Some(conflict) = find_unrest(&change.binding) {
            return refuse_for(conflict);
        }
        changed.push(format!("server_id {} -> {server_id}", change.binding.server_id));
        change.binding.server_id = server_id.clone();
    }
    if let Some(config) = config.filter(|config| **config != change.binding.config) {
        if let Err(error) = config.check_bounds() {
            return refuse_for(error.into());
        }
        changed.push("config".to_owned());
        change.binding.config = config.clone();
    }
    if changed.is_empty() {
        return CommandOutcome::NoOp("nothing to change");
    }
    change.record_event(BindingEventKind::Patched, Some(changed.join(", ")));
    write_change(change)
}

fn find_unrest(binding: &Binding) -> Option<BindingConflict> {
    let (state, phase) = (binding.state, binding.phase);
    let rests = state == BindingState::Stopped && binding.is_at_rest();
    (!rests).then_some(BindingConflict::NotAtRest { state, phase })
}
