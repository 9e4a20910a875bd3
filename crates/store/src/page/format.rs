//! Format of a page, and what can be computed without a parsed page.

use cambium_primitives::{ACCOUNT_NIBBLES, DecodeError, Path, put_varint};
use xxhash_rust::xxh3::xxh3_64;

/// Largest page in bytes.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

// Page. Numbers are little-endian, `varint` is LEB128.
//
// OFFSET     SIZE    MEANING
// 0          8       xxh3-64 of all that follows, to the end of the page
// 8          4       length of the page
// 12         1       format: 2
// 13         1       bit 0: offsets are of four bytes, not of two; bit 1: an owner follows
// 14         1       length p of the prefix, in nibbles
// 15         ⌈p/2⌉   prefix, packed
// then       varint  if there is an owner (p is 64 or more then): the length of its value
//                    the value
// then       varint  number of leaves
// then               run of accounts if p <= 64, else of slots
// then       varint  number of digests, followed by as many digests in order of their paths
//
// Run, of keys of k bytes: 32 - ⌊p/2⌋ for accounts, 64 - ⌊p/2⌋ for slots in a page of their own,
// 32 for slots after their account.
//
// 0          varint  number n of entries
// then       varint  length of the data
// then       2n      heads: the first two bytes of each key as a big-endian number
// then       2n, 4n  offset of each entry in the data; topmost bit: the account has slots here
// then               data: the entries
//
// Entry
//
// 0          k - 2   the rest of the key (none if k < 2)
// then               value, to the start of the next entry; or, of an account with slots here:
//            varint  length of its value + 1, or 0 if the account's own leaf is not in the page
//                    value
//                    run of slots, to the start of the next entry
//
// Digest
//
// 0          1       nibbles shared with the digest before, or with the prefix
// 1          1       a: nibbles that follow
// 2          ⌈a/2⌉   these, packed
// then       1       length of the digest, at most 32
// then               digest
pub(crate) const FORMAT: u8 = 2;
pub(super) const WIDE: u8 = 1;
pub(super) const OWNER: u8 = 2;
pub(super) const FLAGS_AT: usize = 13;
pub(super) const PREFIX_AT: usize = 15;
pub(super) const CHECKED_FROM: usize = 8;
pub(super) const DIGEST_BYTES_MAX: usize = 32;
pub(super) const HEAD_BYTES: usize = 2;

/// Largest run in bytes for which offsets take two bytes. One bit of an offset is a flag.
pub(super) const NARROW_DATA_BYTES_MAX: usize = 0x7fff;

/// Reason why bytes are not a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The checksum does not match: the bytes are not those that were written.
    #[error("checksum of a page does not match")]
    Checksum,
    /// The checksum matches, but the content is invalid: the page was written wrongly or is forged.
    #[error("malformed page: {0}")]
    Malformed(#[from] DecodeError),
}

/// Length in bytes of the keys in a page's outermost run.
pub(super) const fn top_key_len(prefix_len: usize) -> usize {
    top_path_len(prefix_len) - prefix_len / 2
}

/// Length in bytes of the paths of a page's outermost entries: 64 for slots, 32 for accounts.
pub(super) const fn top_path_len(prefix_len: usize) -> usize {
    if prefix_len > ACCOUNT_NIBBLES { 64 } else { 32 }
}

/// Returns the length that a page claims, if it is possible and the bytes are there.
pub(super) fn page_len(bytes: &[u8]) -> Option<usize> {
    let len = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) as usize;
    (len >= PREFIX_AT && len <= bytes.len() && len <= PAGE_BYTES_MAX).then_some(len)
}

/// Number of bytes that [`len_if_page`] needs.
pub(crate) const BEGIN_BYTES: usize = PREFIX_AT;

/// Returns the length of the page that may begin with these bytes. Its checksum is not verified.
pub(crate) fn len_if_page(bytes: &[u8]) -> Option<usize> {
    let len = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) as usize;
    let (format, flags) = (*bytes.get(12)?, *bytes.get(FLAGS_AT)?);
    let is_page = format == FORMAT && flags & !(WIDE | OWNER) == 0;
    (is_page && (PREFIX_AT..=PAGE_BYTES_MAX).contains(&len)).then_some(len)
}

/// Returns the size in bytes of a leaf in a page, for planning where a page ends. In addition a
/// page takes about 25 bytes, an account with slots in the page up to 10, and a digest about 36. In
/// pages over 32 KiB each leaf takes 2 more. For a slot, the account's bytes are not included.
pub const fn leaf_size_bytes(prefix_len: usize, path_len: usize, value_len: usize) -> usize {
    let key = if path_len > ACCOUNT_NIBBLES && prefix_len <= ACCOUNT_NIBBLES {
        32
    } else {
        top_key_len(prefix_len)
    };
    HEAD_BYTES + 2 + key.saturating_sub(HEAD_BYTES) + value_len
}

/// Writes everything before the run of a page. [`seal`] fills in length and checksum.
pub(super) fn put_head(
    page: &mut Vec<u8>,
    wide: bool,
    prefix: &Path,
    owner: Option<&[u8]>,
    leaves: usize,
) {
    page.resize(CHECKED_FROM + 4, 0);
    let wide = if wide { WIDE } else { 0 };
    let owned = if owner.is_some() { OWNER } else { 0 };
    page.extend([FORMAT, wide | owned, prefix.len() as u8]);
    page.extend_from_slice(prefix.packed());
    if let Some(owner) = owner {
        put_varint(page, owner.len() as u64);
        page.extend_from_slice(owner);
    }
    put_varint(page, leaves as u64);
}

/// Fills in the length and the checksum of an otherwise complete page.
pub(super) fn seal(page: &mut [u8]) {
    let len = u32::try_from(page.len()).expect("a page under 4 GiB");
    page[8..12].copy_from_slice(&len.to_le_bytes());
    let sum = xxh3_64(&page[CHECKED_FROM..]);
    page[..8].copy_from_slice(&sum.to_le_bytes());
}
