//! Leaf pages: the run of leaves of one subtrie.

use cambium_primitives::Path;

/// Size limit of a page.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Why bytes are not a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PageError(&'static str);

/// Writes one page.
#[derive(Debug)]
pub struct PageBuilder {}

impl PageBuilder {
    /// A page of all the leaves under `prefix` (or those of them that the caller chooses).
    pub fn new(prefix: &Path) -> Self {
        _ = prefix;
        unimplemented!()
    }

    /// Adds a leaf: an account's (64 nibbles) or a slot's (128). Panics unless `path` is under the
    /// prefix and comes after the leaf before. A slot's account need not be in the page.
    pub fn leaf(&mut self, path: &Path, value: &[u8]) -> &mut Self {
        _ = (path, value);
        unimplemented!()
    }

    /// Adds the cached digest of the subtrie at `path`, in any order. Panics if it is over 32
    /// bytes, `path` is not under the prefix, or it has one already.
    pub fn digest(&mut self, path: &Path, digest: &[u8]) -> &mut Self {
        _ = (path, digest);
        unimplemented!()
    }

    /// Number of leaves so far.
    pub fn len(&self) -> usize {
        unimplemented!()
    }

    /// Whether there is no leaf yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The page's bytes. Over [`PAGE_BYTES_MAX`], segments refuse it.
    pub fn finish(&self) -> Vec<u8> {
        unimplemented!()
    }
}

/// A page, checked once so that access can't go wrong later. Share it in an `Arc`.
#[derive(Debug)]
pub struct Page {
    prefix: Path,
}

impl Page {
    /// Checks `bytes`, which may have zeros after the page's end.
    pub fn parse(bytes: impl Into<Box<[u8]>>) -> Result<Self, PageError> {
        _ = bytes.into();
        unimplemented!()
    }

    /// What all its paths begin with.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The value of the leaf at `path`.
    pub fn get(&self, path: &Path) -> Option<&[u8]> {
        _ = path;
        unimplemented!()
    }

    /// All leaves, in order of their paths.
    pub fn leaves(&self) -> impl Iterator<Item = (Path, &[u8])> + '_ {
        std::iter::empty()
    }

    /// All cached digests, in order of their paths.
    pub fn digests(&self) -> impl Iterator<Item = (Path, &[u8])> + '_ {
        std::iter::empty()
    }

    /// Number of leaves.
    pub fn len(&self) -> usize {
        unimplemented!()
    }

    /// Whether there is no leaf.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory: for a cache's budget.
    pub fn size_bytes(&self) -> usize {
        unimplemented!()
    }
}

/// Bytes that a leaf takes in a page: for planning where one page ends. The page itself takes some
/// 25 bytes more, an account with slots in the page up to 10 more, each digest 36 or so, and in
/// pages of over 32 KiB each leaf two more.
pub const fn leaf_bytes(prefix_len: usize, path_len: usize, value_len: usize) -> usize {
    _ = (prefix_len, path_len, value_len);
    unimplemented!()
}
