//! What strangers write, changed in every way, with the memory that its readers take.

mod genesis_text;

mod blocks;
mod files;
mod genesis;
mod witnesses;

use cambium_testkit::CountingAllocator;
use std::sync::Mutex;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// All that is allocated is counted: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());
