//! Other queues, measured like dispatchq's own: `dispatchq bench queue --peer bench-peers` runs this in turn with itself.
//!
//! * [`apalis_redis`]: the stock storage of apalis 1.0, which dispatchq's engine replaces.
//! * [`process`]: no-op jobs that lie ready, performed as fast as it can.
//! * [`lateness`]: timers that fall due evenly.
//!
//! Each command starts a Redis of its own, the same as dispatchq's, and ends with one line of JSON on stdout.

mod apalis_redis;
mod lateness;
mod process;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "bench-peers", about = "Measures stock apalis-redis for comparison with dispatchq")]
enum PeerCommand {
    /// No-op jobs per second, all lying ready when the worker starts
    Process(process::ProcessArgs),
    /// How late timers start
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
