//! Fuzz targets for everything that Cambium reads and that may come from an attacker or a damaged
//! disk.
//!
//! A target is a function of bytes. Besides panics, it detects results that break a promise of the
//! format, or differ from a model that is too simple to be wrong.
//!
//! ```text
//!   fuzz_targets/page.rs   libFuzzer finds bytes     scripts/fuzz page 300, or cargo-fuzz
//!   ../crates/hostile/tests/fuzz_targets.rs          seeds and random changes of them, in ./test
//!            \
//!             run(name, bytes) -> memory -> page(bytes)
//! ```
//!
//! Before a target reads bytes, it corrects their checksums and hashes ([`page()`] seals its page,
//! [`log()`] its records, [`proof()`] links its nodes). Otherwise the search would never get behind
//! them.
//!
//! ```
//! let target = cambium_fuzz::target("changes").expect("a target of that name");
//! for (name, bytes) in cambium_fuzz::seeds("changes") {
//!     println!("{name}: {} bytes", bytes.len());
//!     target.run(&bytes);
//! }
//! ```

mod memory;
mod input;
mod database;
mod links;
mod page;
mod checkpoint;
mod trie_part;
mod index;
mod log;
mod changes;
mod block_record;
mod block_body;
mod preimages;
mod access_list;
mod files;
mod proof;
mod entry_proof;
mod layered_proof;
mod witness;
mod witness_json;
mod stateless;
mod genesis;
mod engine_ssz;
mod seeds;

pub use access_list::access_list;
pub use block_body::block_body;
pub use block_record::block_record;
pub use changes::changes;
pub use checkpoint::checkpoint;
pub use engine_ssz::engine_ssz;
pub use entry_proof::entry_proof;
pub use files::{block_file, era1};
pub use genesis::genesis;
pub use index::index;
pub use layered_proof::layered_proof;
pub use log::log;
pub use page::page;
pub use preimages::preimages;
pub use proof::proof;
pub use seeds::seeds;
pub use stateless::stateless;
pub use trie_part::trie_part;
pub use witness::witness;
pub use witness_json::witness_json;

/// A fuzz target and its limits of memory.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target, of its program, and of its folder in `corpus`.
    pub name: &'static str,
    /// Reads bytes, and panics if the result breaks a promise.
    body: fn(&[u8]),
    /// Memory that the target may take for any input, in bytes.
    base_bytes: usize,
    /// Memory that it may take in addition for each byte of the input, in bytes.
    each_byte: usize,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// All targets.
pub const TARGETS: &[Target] = &[
    Target::new("page", page, 256 * KIB, 512),
    Target::new("checkpoint", checkpoint, 512 * KIB, 64),
    Target::new("trie_part", trie_part, 256 * KIB, 512),
    Target::new("index", index, 48 * MIB, 512),
    Target::new("log", log, 8 * MIB, 64),
    Target::new("block_record", block_record, 48 * MIB, 512),
    // Receipts are compressed.
    Target::new("block_body", block_body, 256 * KIB, 512),
    // Pages of runs are merged in memory, and a run that is written has buffers.
    Target::new("preimages", preimages, 4 * MIB, 512),
    Target::new("changes", changes, 64 * KIB, 512),
    Target::new("access_list", access_list, 64 * KIB, 512),
    // Blocks may have 64 MiB, and compress to very little.
    Target::new("block_file", block_file, 256 * MIB, 64),
    Target::new("era1", era1, 256 * MIB, 64),
    Target::new("proof", proof, 256 * KIB, 1024),
    // Nodes may refer to the same nodes repeatedly, as in a witness.
    Target::new("entry_proof", entry_proof, 512 * MIB, 64 * KIB),
    // Every input makes ten worlds of tries.
    Target::new("layered_proof", layered_proof, 4 * MIB, KIB),
    // Nodes may refer to the same nodes repeatedly: up to 2^20 of them are unfolded.
    Target::new("witness", witness, 512 * MIB, 64 * KIB),
    Target::new("stateless", stateless, 512 * MIB, 64 * KIB),
    // A number of one digit becomes a slot of 32 bytes, and is written as such.
    Target::new("genesis", genesis, 256 * KIB, KIB),
    Target::new("witness_json", witness_json, 256 * KIB, 512),
    // An offset of 4 bytes becomes the place of an item, and then the item.
    Target::new("engine_ssz", engine_ssz, 256 * KIB, 512),
];

impl Target {
    const fn new(name: &'static str, body: fn(&[u8]), base_bytes: usize, each_byte: usize) -> Self {
        Self {
            name,
            body,
            base_bytes,
            each_byte,
        }
    }

    /// Runs the target on an input.
    ///
    /// # Panics
    ///
    /// If the target detects a fault, or takes more memory than allowed for its input.
    pub fn run(&self, bytes: &[u8]) {
        let ((), taken) = memory::peak_of(|| (self.body)(bytes));
        let limit = self.base_bytes + self.each_byte * bytes.len();
        assert!(
            taken <= limit,
            "{}: {taken} bytes of memory for {} bytes of input, {limit} are allowed",
            self.name,
            bytes.len()
        );
    }
}

/// Returns the target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs the target of this name, which must exist.
pub fn run(name: &str, bytes: &[u8]) {
    target(name).expect("a target of that name").run(bytes);
}
