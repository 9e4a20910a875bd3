//! Sizes of pages, and of the subtries whose node references are cached in pages as digests.

/// Maximum size of a page, in bytes: two blocks of a device. Larger subtries are split over several
/// pages.
pub(crate) const SPLIT_ABOVE_BYTES: usize = 8 * 1024;
/// Sibling pages that take at most this many bytes together are joined when one of them changes.
pub(crate) const JOIN_BELOW_BYTES: usize = SPLIT_ABOVE_BYTES / 4;
/// Minimum number of leaves below an inner branch for its reference to be cached in the page.
pub(crate) const DIGEST_LEAVES_MIN: usize = 6;
/// Minimum number of leaves below a child of the page's topmost branch for its reference to be
/// cached. Any change in the page needs these references, and a cached one saves reading the leaves
/// below it. Hashing a single leaf is cheaper than the 36 bytes of a digest.
pub(crate) const DIGEST_CHILD_LEAVES_MIN: usize = 2;
/// Minimum number of an account's slots for its storage root to be cached in the page.
pub(crate) const DIGEST_SLOTS_MIN: usize = 3;
/// Approximate size of a digest in a page, in bytes.
pub(crate) const DIGEST_BYTES: usize = 40;
