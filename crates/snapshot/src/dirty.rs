//! One shard of the tries above the snapshot, with the pages that it has taken apart.

use cambium_store::{Page, PageAddr};
use cambium_trie::PartialTrie;
use rustc_hash::FxBuildHasher;
use std::{collections::HashMap, sync::Arc};

/// Pages that a trie has taken apart, held until it is merged: what it left as stubs is written
/// again then.
#[derive(Clone, Default)]
pub struct HeldPages {
    pages: HashMap<PageAddr, Arc<Page>, FxBuildHasher>,
    bytes: usize,
}

/// What an entry of that map takes, its spare room included.
const HELD_ENTRY_BYTES: usize = 40;

impl HeldPages {
    /// Holds the page at `addr`.
    pub fn hold(&mut self, addr: PageAddr, page: Arc<Page>) {
        let bytes = page.size_bytes() + HELD_ENTRY_BYTES;
        if self.pages.insert(addr, page).is_none() {
            self.bytes += bytes;
        }
    }

    /// The page at `addr`, if it is held.
    pub fn get(&self, addr: PageAddr) -> Option<&Arc<Page>> {
        self.pages.get(&addr)
    }

    /// Memory that the pages take, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

/// A shard's trie above the snapshot.
#[derive(Clone)]
pub struct DirtyShard {
    /// What blocks have changed, and what leads there; stubs stand for the rest.
    pub trie: PartialTrie,
    /// The pages of which it has parts.
    pub held: HeldPages,
}

impl DirtyShard {
    /// A trie that has taken no page apart yet.
    pub fn new(trie: PartialTrie) -> Self {
        Self {
            trie,
            held: HeldPages::default(),
        }
    }

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.trie.memory_bytes() + self.held.memory_bytes()
    }
}
