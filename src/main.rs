//! The binary: parses the command line, runs the command, and prints an error with its causes.

use std::process::ExitCode;

use dispatchq::cli::{self, output};
use foundation::outbound;
use mimalloc::MiMalloc;

/// Allocator for many short allocations that another thread frees, as requests and jobs make them.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Stack size of a runtime thread. Debug builds keep every local of a long async function in its frame, so a request
/// needs more than the default 2 MiB.
const STACK_BYTES: usize = 8 * 1024 * 1024;
/// Tasks that a thread runs before it polls for I/O events. A request takes up to 0.1 ms of a thread. With the default
/// of 61, an answer of Postgres or Redis is noticed 6 ms late while a hundred other tasks are ready.
const TASKS_BETWEEN_LOOKS: u32 = 8;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK_BYTES)
        .event_interval(TASKS_BETWEEN_LOOKS)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            output::print_note(&format!("error: cannot start threads: {error}"));
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(run())
}

async fn run() -> ExitCode {
    outbound::install_tls();
    match cli::run(cli::parse()).await {
        Ok(code) => code,
        Err(error) => {
            output::print_error(&error);
            ExitCode::FAILURE
        }
    }
}
