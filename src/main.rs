//! The binary: reads the command line, runs the command, prints an error as one chain of causes.

use std::process::ExitCode;

use clap::Parser;
use dispatch::outbound;
use dispatchq::cli::{self, Cli};

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
