//! Copies of limits in Redis, `threshold:config:{area}:{service type}`, for other programs. This program does not read
//! them.
//!
//! A worker writes them within a second of each change of the rules. The reconciler writes them once a minute, because
//! schedules change thresholds over time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use model::ids::AreaKey;
use queue::LuaScript;
use redis::cmd;
use tokio_util::sync::CancellationToken;

use super::{
    effective::resolve_limits,
    waiting::{self, SuspectMembers},
};
use crate::capability::Areas;
use foundation::{error::ServiceError, loops::report_progress, redis_keys};

const LOOK_EVERY: Duration = Duration::from_millis(400);
/// Time for which a copy is kept. It is longer than a short absence of the reconciler, but short enough for copies of
/// removed limits to expire.
const KEPT_S: u64 = 3600;
static COPY: LuaScript = LuaScript::new(include_str!("scripts/copy_limits.lua"));

/// Copies the limits of every area and service type. Returns the keys of the copies.
pub async fn mirror_limits(areas: &Areas) -> Result<BTreeSet<String>, ServiceError> {
    let rules = areas.rules.get();
    let now = areas.core.database_clock.now();
    let mut keys: BTreeSet<AreaKey> = rules.configured_areas().cloned().collect();
    for area in rules.geofence.areas() {
        let served = areas.config.service_types.keys().filter(|service_type| area.serves(service_type));
        keys.extend(served.map(|service_type| AreaKey::new(&area.id, service_type)));
    }
    let mut wanted = BTreeSet::new();
    for AreaKey { area, service_type } in &keys {
        let limits = resolve_limits(areas, &rules, area, service_type, now);
        let key = redis_keys::threshold_config(area, service_type);
        let mut copy = COPY.call([&key]);
        copy.arg(limits.max_waiting_orders).arg(limits.waiting_timeout_sec).arg(KEPT_S);
        areas.core.store.run_command::<i64>("mirror limits", &copy).await?;
        report_progress();
        wanted.insert(key);
    }
    Ok(wanted)
}

/// Rules that were last copied.
#[derive(Debug, Default)]
struct CopiedRules {
    revision: i64,
    keys: BTreeSet<String>,
    windows: Option<BTreeMap<AreaKey, Duration>>,
}

impl CopiedRules {
    /// Copies the limits if the rules have changed, and deletes copies of removed areas. If a waiting window has
    /// changed, the orders in the waiting sets get their new expiry.
    async fn follow_rules(&mut self, areas: &Areas) -> Result<(), ServiceError> {
        let rules = areas.rules.get();
        if rules.revision() == self.revision {
            return Ok(());
        }
        let keys = mirror_limits(areas).await?;
        for gone in self.keys.difference(&keys) {
            areas.core.store.run_command::<i64>("remove copy of limits", cmd("DEL").arg(gone)).await?;
        }
        let windows = rules.waiting_windows();
        // When the process has just started, nothing is done here, because the reconciler compares the sets anyway.
        if self.windows.as_ref().is_some_and(|known| *known != windows) {
            let mut suspects = SuspectMembers::default();
            waiting::repair_exclusively(areas, &mut suspects).await?;
        }
        *self = Self { revision: rules.revision(), keys, windows: Some(windows) };
        Ok(())
    }
}

/// Keeps the copies up to date until `stop` is cancelled.
pub async fn keep_copied(areas: Areas, stop: CancellationToken) {
    let turns = areas.core.loops.register_loop("copies of limits");
    let mut copied = CopiedRules::default();
    let mut failing = false;
    while !stop.is_cancelled() {
        match turns.run_turn(copied.follow_rules(&areas)).await {
            Some(Err(error)) if !failing => {
                tracing::warn!(%error, "The limits of areas could not be copied to Redis; the next turn copies them.");
                failing = true;
            }
            Some(Ok(())) => failing = false,
            Some(Err(_)) | None => {}
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}
