//! Padded inputs as sequences of blocks. A permutation absorbs one block.

/// Bytes that one permutation absorbs: the 1600 bits of the state less twice the 256 of the digest.
pub(crate) const RATE: usize = 136;

/// The part of an input that one permutation absorbs.
pub(crate) type Block = [u8; RATE];

/// An input to hash: the index of its first block, and the index of its digest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    #[cfg_attr(
        not(any(test, all(feature = "std", target_arch = "x86_64"))),
        expect(dead_code, reason = "only vectors read blocks")
    )]
    pub(crate) first_block: u32,
    pub(crate) index: u32,
}
