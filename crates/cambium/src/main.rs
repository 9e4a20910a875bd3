//! The `cambium` program.

mod cli;

use std::process::ExitCode;

/// The system's allocator takes a fifth of the processor time of computing a root, which allocates
/// and frees memory of all sizes on all threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
