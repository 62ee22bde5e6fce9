//! A binding that is not read before a call is claimed: it is recalled.
//!
//! Who writes that a cycle has ended gives the next cycle's job a copy of the row along. The process that performs the job has seen the
//! row's server lately, and Postgres' clock. A claim that is decided on these is written only where all of it is still so
//! ([`CopyCheck`]): the row decides, and a copy that is stale, of another version or made up costs one statement that changes nothing.

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
use crate::db::schema_fingerprint;

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
        let begins = row.state == BindingState::Running && row.phase == BindingPhase::Idle && row.deleted_at.is_none();
        begins.then(|| Self { schema: *SCHEMA, row: row.clone() })
    }

    /// Returns whether it is this binding's row.
    pub fn is_of(&self, binding: &BindingId) -> bool {
        self.row.id == *binding
    }

    /// As a job carries it.
    pub fn to_hint(&self) -> Value {
        serde_json::to_value(self).expect("a row has text keys and finite depth")
    }

    /// `None`: it is none, or another version wrote it.
    pub fn read_hint(hint: &Value) -> Option<Self> {
        let copy = Self::deserialize(hint).ok()?;
        (copy.schema == *SCHEMA).then_some(copy)
    }
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
