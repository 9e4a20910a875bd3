//! One shard of the dirty trie above the snapshot, with the pages that it has expanded.

use cambium_store::{Page, PageAddr};
use cambium_trie::PartialTrie;
use rustc_hash::FxBuildHasher;
use std::{collections::HashMap, sync::Arc};

/// Pages that a dirty trie has expanded. They are held until the merge, which copies the parts of
/// them that are still blinded in the trie.
#[derive(Clone, Default)]
pub struct HeldPages {
    pages: HashMap<PageAddr, Arc<Page>, FxBuildHasher>,
    bytes: usize,
}

/// Memory of one map entry, including spare capacity, in bytes.
const HELD_ENTRY_BYTES: usize = 40;

impl HeldPages {
    /// Adds the page at `addr`.
    pub fn hold(&mut self, addr: PageAddr, page: Arc<Page>) {
        let bytes = page.size_bytes() + HELD_ENTRY_BYTES;
        if self.pages.insert(addr, page).is_none() {
            self.bytes += bytes;
        }
    }

    /// Returns the page at `addr`, if it is held.
    pub fn get(&self, addr: PageAddr) -> Option<&Arc<Page>> {
        self.pages.get(&addr)
    }

    /// Memory of the pages, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

/// One of the 256 shards of a dirty trie: the state trie of a block above the snapshot, expanded
/// only where blocks have changed it, or read it in order to change it.
#[derive(Clone)]
pub struct DirtyShard {
    /// The changed leaves, those read for a change, and the nodes above them. The rest is blinded.
    pub trie: PartialTrie,
    /// The pages that `trie` has expanded.
    pub held: HeldPages,
}

impl DirtyShard {
    /// Creates a shard that has expanded no page yet.
    pub fn new(trie: PartialTrie) -> Self {
        Self {
            trie,
            held: HeldPages::default(),
        }
    }

    /// Memory of the trie and of the held pages, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.trie.memory_bytes() + self.held.memory_bytes()
    }
}
