//! Threads that help to execute blocks. They stay for the next block: a thread that starts for one block takes 0.5 to 1.2 ms of a
//! processor, most of it for memory that it uses first.

use cambium_crew::Crew;
use std::sync::LazyLock;

/// Executors call as many as they are told to have. This many would be a mistake.
const THREADS_MAX: usize = 1024;

pub(crate) static HELPERS: LazyLock<Crew> = LazyLock::new(|| Crew::new("run", THREADS_MAX));
