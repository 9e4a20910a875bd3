//! Sizes of pages, and what is cached in them.

/// Leaves of more bytes than this are split over several pages: two blocks of a device.
pub(crate) const PAGE_BYTES_MAX: usize = 8 * 1024;
/// Neighbouring pages of fewer bytes than this together become one when one of them changes.
pub(crate) const PAGE_BYTES_JOIN: usize = PAGE_BYTES_MAX / 4;
/// An inner branch over at least this many leaves has its hash cached in the page.
pub(crate) const DIGEST_LEAVES_MIN: usize = 6;
/// A child of the page's topmost branch over at least this many leaves has its hash cached:
/// whatever changes in the page, it is needed, and need not be looked at if nothing below changes.
/// For a single leaf its hash costs less than the 36 bytes.
pub(crate) const DIGEST_CHILD_LEAVES_MIN: usize = 2;
/// An account of at least this many slots has its storage root cached in the page.
pub(crate) const DIGEST_SLOTS_MIN: usize = 3;
/// What a digest takes in a page, about.
pub(crate) const DIGEST_BYTES: usize = 40;
