//! Kinds of faults.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ChaosFault {
    /// Kill a worker (SIGKILL) and replace it
    KillWorker,
    /// Kill an API process (SIGKILL) and replace it
    KillServe,
    /// Freeze a worker (SIGSTOP) for longer than a lease
    StopWorker,
    /// Freeze an API process (SIGSTOP) for longer than a lease
    StopServe,
    /// Flush Redis (FLUSHALL)
    Flush,
    /// Kill Redis, and restart it some seconds later
    KillRedis,
    /// Kill Postgres, and restart it some seconds later
    KillPostgres,
    /// End all connections on both servers
    Terminate,
    /// Block open connections to the servers without closing them
    HalfOpen,
    /// Delay all traffic to and from the servers
    Latency,
    /// Make Postgres read-only, like a standby
    ReadOnly,
    /// Fill Redis, so that it refuses writes
    FullRedis,
    /// Keep a transaction open that has read the history, while a worker starts and the cleanup runs
    LongReader,
    /// Let the receiver of messages accept connections but not answer
    HangingReceiver,
    /// Flood the API with requests that have wrong keys
    KeyFlood,
    /// Promote a replica of Redis whose clock is wrong
    ClockStep,
}

impl ChaosFault {
    /// Returns the name on the command line.
    pub(super) fn cli_name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns the minimum and maximum duration.
    pub(super) fn duration_bounds(self) -> (Duration, Duration) {
        let (shortest, longest) = match self {
            Self::KillWorker | Self::KillServe | Self::Flush | Self::Terminate | Self::ClockStep => (0, 0),
            // Longer than a lease, which is 8 s.
            Self::StopWorker | Self::StopServe => (9_000, 11_000),
            Self::KillRedis | Self::KillPostgres => (1_000, 5_000),
            Self::HalfOpen | Self::ReadOnly => (4_000, 8_000),
            Self::Latency | Self::FullRedis | Self::KeyFlood => (4_000, 6_000),
            Self::LongReader | Self::HangingReceiver => (6_000, 9_000),
        };
        (Duration::from_millis(shortest), Duration::from_millis(longest))
    }
}
