//! Counts of bindings and providers' servers for /metrics.

use std::time::Duration;

use sqlx::FromRow;

use bindings::store::servers::{ProviderServer, list_servers};
use foundation::{core::Core, error::ServiceError};

/// Maximum servers that are reported individually. With more servers, use the tables.
const MOST_SERVERS: i64 = 500;

/// Bindings by state.
#[derive(Debug, Clone, Copy, PartialEq, FromRow)]
pub struct BindingCensus {
    pub stopped: i64,
    pub running: i64,
    pub paused: i64,
    pub stopping: i64,
    /// Bindings that wait for a person to submit an OTP.
    pub waiting_otp: i64,
    /// Longest wait of a binding for an OTP, in seconds; 0 if there is none.
    pub otp_oldest_s: f64,
    /// Delay of the most overdue binding, in seconds; 0 if none is due. Bindings of paused servers do not count.
    pub most_overdue_s: f64,
    pub unresolved: i64,
}

/// Open calls, and jobs that wait for a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallCensus {
    pub open: u64,
    pub limit: u64,
    pub parked: u64,
    pub longest_wait_s: f64,
    pub servers: Vec<ServerCensus>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ServerCensus {
    pub server: ProviderServer,
    pub open: u64,
    pub limit: u64,
    /// Bindings in the server's line.
    pub parked: u64,
    /// Wait of the first binding in the line.
    pub longest_wait_s: f64,
    /// Whether the server is paused after failures or at its own request.
    pub breaker_is_open: bool,
    /// Whether the server is not called, because it is disabled or paused.
    pub is_paused: bool,
}

pub async fn count_bindings(core: &Core) -> Result<BindingCensus, sqlx::Error> {
    sqlx::query_as(include_str!("count_bindings.sql")).fetch_one(&core.db).await
}

/// Counts calls and waiting jobs in Redis, for at most 500 servers.
pub async fn count_calls(core: &Core) -> Result<CallCensus, ServiceError> {
    let servers = list_servers(&core.db, None, MOST_SERVERS).await?;
    let names: Vec<&str> = servers.iter().map(|server| server.id.as_str()).collect();
    let stats = core.store.slot_stats(&names).await?;
    let now = foundation::db::database_now(&core.db).await?;
    let wait_s = |waits_ms: Option<u64>| Duration::from_millis(waits_ms.unwrap_or(0)).as_secs_f64();
    let servers = servers.into_iter().zip(&stats.groups).map(|(server, group)| {
        let is_left_alone = server.paused_until.is_some_and(|until| until > now);
        ServerCensus {
            open: u64::from(group.in_use),
            limit: u64::from(group.limit),
            parked: group.waiting,
            longest_wait_s: wait_s(group.first_waits_ms),
            breaker_is_open: server.enabled && is_left_alone,
            is_paused: !server.enabled || is_left_alone,
            server,
        }
    });
    Ok(CallCensus {
        open: stats.in_use,
        limit: u64::from(stats.limit),
        parked: stats.parked,
        longest_wait_s: wait_s(stats.groups.iter().filter_map(|group| group.first_waits_ms).max()),
        servers: servers.collect(),
    })
}
