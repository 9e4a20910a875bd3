//! The `cambium` program.

mod cli;

use std::process::ExitCode;

/// The system's own takes a fifth of the processor time of a root: memory comes and goes here in
/// pieces of all sizes, on all threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
