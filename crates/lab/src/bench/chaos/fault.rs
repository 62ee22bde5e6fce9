//! What can fail.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ChaosFault {
    /// A worker is killed (SIGKILL) and replaced
    KillWorker,
    /// An API process is killed (SIGKILL) and replaced
    KillServe,
    /// A worker stands still (SIGSTOP) for longer than a lease
    StopWorker,
    /// An API process stands still (SIGSTOP) for longer than a lease
    StopServe,
    /// Redis loses its data (FLUSHALL)
    Flush,
    /// Redis is killed, and is back some seconds later
    KillRedis,
    /// Postgres is killed, and is back some seconds later
    KillPostgres,
    /// Both servers end all connections
    Terminate,
    /// Nothing passes on connections to the servers, which stay open
    HalfOpen,
    /// Everything to and from the servers takes longer
    Latency,
    /// Postgres refuses to write, as a standby does
    ReadOnly,
    /// Redis is full and refuses to write
    FullRedis,
    /// A transaction that has read the history stays open while a worker starts and the cleanup runs
    LongReader,
    /// The receiver of messages accepts them and does not answer
    HangingReceiver,
    /// Clients with wrong keys ask as often as they can
    KeyFlood,
    /// A replica of Redis whose clock is off becomes the primary
    ClockStep,
}

impl ChaosFault {
    /// As on the command line.
    pub(super) fn cli_name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The shortest and the longest time it lasts.
    pub(super) fn duration_bounds(self) -> (Duration, Duration) {
        let (shortest, longest) = match self {
            Self::KillWorker | Self::KillServe | Self::Flush | Self::Terminate | Self::ClockStep => (0, 0),
            // A lease is 8 s.
            Self::StopWorker | Self::StopServe => (9_000, 11_000),
            Self::KillRedis | Self::KillPostgres => (1_000, 5_000),
            Self::HalfOpen | Self::ReadOnly => (4_000, 8_000),
            Self::Latency | Self::FullRedis | Self::KeyFlood => (4_000, 6_000),
            Self::LongReader | Self::HangingReceiver => (6_000, 9_000),
        };
        (Duration::from_millis(shortest), Duration::from_millis(longest))
    }
}
