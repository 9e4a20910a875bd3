//! The `cambium` program.

mod allocator;
mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::keep_little_memory();
    cli::main()
}
