//! What lanes take in: padded inputs, cut into blocks of one permutation each.

/// Bytes that one permutation absorbs: 1600 bits less twice the 256 of the digest.
pub(crate) const RATE: usize = 136;

/// What one permutation absorbs of one input.
pub(crate) type Block = [u8; RATE];

/// An input to hash: where its first block lies, and where its digest goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    #[cfg_attr(
        not(any(test, all(feature = "std", target_arch = "x86_64"))),
        expect(dead_code, reason = "only vectors read blocks")
    )]
    pub(crate) first_block: u32,
    pub(crate) index: u32,
}
