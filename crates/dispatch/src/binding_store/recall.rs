//! A binding that is not read before a call is claimed: it is recalled.
//!
//! The write that ends a cycle gives the next cycle's job a copy of the row. The process that performs the job has seen the row's server
//! lately, and Postgres' clock. A claim that is decided on these is written only where all of it is still so ([`CopyCheck`]): the row
//! decides. A copy that is of another schema, or of a row from which no cycle begins, is not used; one that is stale, or made up, costs
//! one statement that changes nothing.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use jobs::BindingId;
use model::binding::{Binding, BindingPhase, BindingState, ServerId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{LoadResult, load::LoadedBinding, servers::ServerStanding};
use foundation::db::schema_fingerprint;

/// Postgres' clock is asked again after this.
const CLOCK_KNOWN_FOR: Duration = Duration::from_secs(1);

static SCHEMA: LazyLock<u64> = LazyLock::new(schema_fingerprint);

/// A row as it was written last, of a binding that runs and is at rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowCopy {
    /// The migrations that its writer knows: with others the row may have other columns.
    schema: u64,
    row: Binding,
}

impl RowCopy {
    /// `None`: of this row no cycle can begin.
    pub fn of_row(row: &Binding) -> Option<Self> {
        can_begin_cycle(row).then(|| Self { schema: *SCHEMA, row: row.clone() })
    }

    /// Returns whether it is this binding's row.
    pub fn is_of(&self, binding: &BindingId) -> bool {
        self.row.id == *binding
    }

    /// As a job carries it.
    pub fn to_hint(&self) -> Value {
        serde_json::to_value(self).expect("a row has text keys and finite depth")
    }

    /// `None`: it is none, or none from which a cycle begins, or it is of another schema.
    pub fn read_hint(hint: &Value) -> Option<Self> {
        let copy = Self::deserialize(hint).ok()?;
        (copy.schema == *SCHEMA && can_begin_cycle(&copy.row)).then_some(copy)
    }
}

/// Any producer may write a hint: all that a row at rest has not is looked at, and numbers that could not be counted on.
fn can_begin_cycle(row: &Binding) -> bool {
    let is_counted = |number: i64| (0..i64::MAX / 2).contains(&number);
    row.state == BindingState::Running
        && row.phase == BindingPhase::Idle
        && row.reason.is_none()
        && row.deleted_at.is_none()
        && row.trx_id.is_none()
        && (row.call_action, row.call_until) == (None, None)
        && (row.processing_deadline, row.otp_deadline, row.otp_submitted_at) == (None, None, None)
        && (row.asks, row.otp_tries) == (0, 0)
        && [row.cycle, row.call_no, row.version].into_iter().all(is_counted)
}

/// What must still be so when a claim is written that was decided on a copy.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyCheck {
    pub before: Binding,
    pub server: ServerStanding,
}

impl CopyCheck {
    /// `None`: what was decided on was read.
    pub fn of_loaded(loaded: &LoadedBinding) -> Option<Self> {
        loaded.is_recalled.then(|| Self { before: loaded.binding.clone(), server: loaded.server.clone() })
    }
}

/// The servers that bindings of this process are on, and Postgres' clock, as they were seen last.
#[derive(Debug, Default)]
pub(super) struct SeenServers(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    clock: Option<SeenClock>,
    servers: HashMap<ServerId, ServerStanding>,
}

#[derive(Debug, Clone, Copy)]
struct SeenClock {
    now: DateTime<Utc>,
    asked: Instant,
    received: Instant,
}

impl SeenServers {
    pub(super) fn note_loads(&self, results: &[LoadResult]) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for loaded in results.iter().filter_map(|result| result.as_ref().ok()?.as_ref()) {
            let LoadedBinding { server, now, asked, received, .. } = loaded;
            if seen.clock.is_none_or(|clock| clock.received < *received) {
                seen.clock = Some(SeenClock { now: *now, asked: *asked, received: *received });
            }
            if seen.servers.get(&server.id) != Some(server) {
                seen.servers.insert(server.id.clone(), server.clone());
            }
        }
    }

    /// `None`: the clock or the server was not seen lately, or something is amiss with the server.
    pub(super) fn recall_binding(&self, copy: &RowCopy) -> Option<LoadedBinding> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let SeenClock { now, asked, received } =
            seen.clock.filter(|clock| clock.received.elapsed() < CLOCK_KNOWN_FOR)?;
        let server = seen.servers.get(&copy.row.server_id).filter(|server| server.is_sound())?;
        let (binding, server) = (copy.row.clone(), server.clone());
        Some(LoadedBinding { binding, server, now, asked, received, is_recalled: true })
    }
}
