//! Benchmarks of other queues, comparable with dispatchq's own. `dispatchq bench queue --peer bench-peers` alternates
//! its runs with this program.
//!
//! * [`apalis_redis`]: the stock storage of apalis 1.0, which dispatchq's engine replaces.
//! * [`process`]: throughput of no-op jobs that are ready when the worker starts.
//! * [`lateness`]: lateness of timers that fall due evenly.
//! * [`timer_load`]: the timers, and their measurement. [`figures`]: the figures of all.
//!
//! The program `queue-storage` (queue_storage.rs) measures the engine's own backend for apalis in the same way.
//!
//! Each command starts its own Redis with the same settings as dispatchq's, and prints one line of JSON on stdout at
//! the end.

mod apalis_redis;
mod figures;
mod lateness;
mod process;
mod timer_load;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "bench-peers", about = "Measure stock apalis-redis for comparison with dispatchq")]
enum PeerCommand {
    /// Measure no-op jobs per second, all ready when the worker starts
    Process(process::ProcessArgs),
    /// Measure how late timers start
    Lateness(lateness::LatenessArgs),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let answer = match PeerCommand::parse() {
        PeerCommand::Process(args) => serde_json::to_string(&process::measure_processing(args).await?)?,
        PeerCommand::Lateness(args) => serde_json::to_string(&lateness::measure_lateness(args).await?)?,
    };
    println!("{answer}");
    Ok(())
}
