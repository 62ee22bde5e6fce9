//! The binary: reads the command line, runs the command, prints an error as one chain of causes.

use std::process::ExitCode;

use dispatchq::cli::{self, output};
use foundation::outbound;
use mimalloc::MiMalloc;

/// Requests and jobs allocate much, and free it on other threads.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Debug builds keep every local of a long async function in its frame: those of a request need more than the usual 2 MiB.
const STACK_BYTES: usize = 8 * 1024 * 1024;
/// Tasks that a thread runs before it looks for answers that have come. A request takes up to 0.1 ms of a thread: with 61, as
/// usual, an answer of Postgres or Redis that a request waits for is noticed 6 ms late where a hundred others want something.
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
            output::print_note(&format!("error: the system gives this process no threads: {error}"));
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
