//! Leaf pages: the run of leaves of one subtrie, with the cached digests of its inner subtries.
//!
//! A page is all that a cold read needs to fetch, and all that the trie needs below its resident
//! part. It is laid out for one reader above all, [`Page::get`]: a search in a dense array of two
//! leading key bytes, one look into the offsets beside it, one comparison. Key bytes shared with
//! the prefix are not kept; nor are an account's bytes with each of its slots, which form a run
//! of their own inside the account's entry:
//!
//! ```text
//!  page   | header | run of accounts                              | digests |
//!  run    | heads: 2 bytes of each key | offsets | entries        |
//!  entry  | rest of key | value |                 an account alone, or a slot
//!         | rest of key | value | run of slots |  an account with slots in this page
//! ```
//!
//! A page whose prefix is longer than an account's path has a run of slots instead.
//!
//! An account of 10 value bytes under five nibbles takes 42.2 to 43.4 bytes, all in (of 160 or of
//! 16 in a page). On the development machine a get takes 30 ns, or 300 ns when nothing of the page
//! is in the processor's caches; parsing takes 0.6 us for 16 leaves and 2.7 us for 160.
//!
//! Bytes are checked once, by [`Page::parse`]: the checksum, then every offset and the order of
//! all keys, so that access has nothing left to check. The checksum alone would do against
//! accidents; the rest is for bytes that somebody made.

mod format;
mod digest;
mod run;
mod leaf_page;
mod builder;
mod rewrite;

pub use builder::PageBuilder;
pub(crate) use format::{BEGIN_BYTES, len_if_page};
pub use format::{PAGE_BYTES_MAX, PageError, leaf_bytes};
pub use leaf_page::Page;
pub use rewrite::PageRewriter;

#[cfg(test)]
mod tests;
