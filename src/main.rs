//! The binary: reads the command line, runs the command, prints an error as one chain of causes.

use std::process::ExitCode;

use clap::Parser;
use dispatchq::cli::{self, Cli};

#[tokio::main]
async fn main() -> ExitCode {
    match cli::run(Cli::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
