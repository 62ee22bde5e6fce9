//! The binary: reads the command line, runs the command, prints an error as one chain of causes.

use std::process::ExitCode;

use clap::Parser;
use dispatch::outbound;
use dispatchq::cli::{self, Cli};
use mimalloc::MiMalloc;

/// Requests and jobs allocate much, and free it on other threads.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    outbound::install_tls();
    match cli::run(Cli::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
