//! Reading ahead of execution: which keys the next blocks will touch.
//!
//! ```text
//!   known keys   senders, recipients, access lists, ...: they follow from the block   known.rs
//!   scouts       contract calls, run for nothing but their reads                      scout.rs
//! ```
//!
//! A scout runs on the newest state there is, which lacks the blocks before its own. So it may read other keys than
//! execution will. Its only effect is that the pages which it reads are in memory.
//!
//! Many scouts are under way at once on one thread. Each has a stack of its own, and is parked while
//! a page that it needs is being read ([`fibers`]). Where stacks can't be switched, a scout starts
//! again when its page has arrived ([`restarts`]).

mod known;
mod scout;
mod restarts;
#[cfg(all(unix, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod fibers;
#[cfg(not(all(unix, any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod fibers {
    pub(super) use super::restarts::Restarts as Fibers;
}
mod scouts;

pub use known::{KnownKeys, may_run_code};
pub use scout::AheadState;
pub use scouts::Scouts;

#[cfg(test)]
mod tests;
