//! What the blinded nodes of the index name besides pages: its lower levels.

use cambium_store::PageAddr;
use cambium_trie::{Place, Stub};

/// Where a part of an index on disk is: an address in the segments, or offset and length, in bytes, in the section `index` of
/// a checkpoint (in the top of a shard relative to the shard's first part). Of a block of an index in memory, its number. The
/// form of the index says which of the three it is.
// In the top of a shard, the place of a blinded node encodes it. Bit 63 distinguishes it from the address of a page:
//
// BITS      MEANING
// 63        1
// 62 .. 0   address of a part in the segments, as that of a page (63 bits); or
// 62 .. 16  offset from where the shard's parts begin, in bytes, and
// 15 .. 0   length, in bytes
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PartRef(u64);

const MARK: u64 = 1 << 63;
const LEN_BITS: u32 = 16;

impl PartRef {
    /// Refers to the block with this number in a list that goes with the trie.
    pub(crate) const fn block(number: usize) -> Self {
        Self(number as u64)
    }

    /// Returns the number of the block.
    pub(crate) const fn number(self) -> usize {
        self.0 as usize
    }

    /// Refers to a part in the segments.
    pub(crate) const fn at(addr: PageAddr) -> Self {
        Self(addr.to_u64())
    }

    /// Returns the address of a part in the segments. `None` for one that no part has.
    pub(crate) fn addr(self) -> Option<PageAddr> {
        PageAddr::from_u64(self.0)
    }

    /// Refers to `len` bytes at `offset` of a checkpoint's section.
    ///
    /// # Panics
    ///
    /// If the offset is 2^47 or more, or the length 2^16 or more.
    pub(crate) fn in_section(offset: u64, len: u64) -> Self {
        let fits = offset < MARK >> LEN_BITS && len < 1 << LEN_BITS;
        assert!(fits, "{len} bytes at {offset}");
        Self(offset << LEN_BITS | len)
    }

    /// Returns offset and length of a part in a checkpoint's section, in bytes.
    pub(crate) const fn range(self) -> (u64, u64) {
        (self.0 >> LEN_BITS, self.0 & ((1 << LEN_BITS) - 1))
    }

    /// Returns the reference from the start of the section, where `start` is the offset of the shard's first part, in bytes: 0 if
    /// parts are in the segments.
    pub(super) const fn behind(self, start: u64) -> Self {
        Self(self.0.saturating_add(start.saturating_mul(1 << LEN_BITS)))
    }

    /// Encodes the reference as the place of a stub.
    pub(crate) fn to_place(self) -> Place {
        Place::new(MARK | self.0).expect("not zero")
    }

    /// Returns the part that the stub names, or `None` if it names a page or has no place.
    pub(crate) fn of(stub: &Stub) -> Option<Self> {
        let place = stub.place?.get();
        (place & MARK != 0).then_some(Self(place & !MARK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_trie::NodeRef;

    #[test]
    fn the_place_of_a_part_is_what_it_was_and_no_page_has_it() {
        let part = PartRef::in_section(0x0123, 0x45);
        let place = part.to_place();
        assert_eq!(place.get(), 0x8000_0000_0123_0045);
        assert_eq!(part.range(), (0x0123, 0x45));
        assert_eq!(part.behind(0x1000).range(), (0x1123, 0x45));
        let stub = |place| Stub {
            place,
            ..Stub::bare(NodeRef::inline(&[0x80]).expect("one byte"))
        };
        assert_eq!(PartRef::of(&stub(Some(place))), Some(part));
        let last = PartRef::in_section((1 << 47) - 1, (1 << 16) - 1);
        assert_eq!(PartRef::of(&stub(Some(last.to_place()))), Some(last));
        let addr = PageAddr::from_u64(MARK - 1).expect("not zero");
        let in_segments = PartRef::at(addr);
        assert_eq!(in_segments.addr(), Some(addr));
        assert_eq!(in_segments.behind(0), in_segments);
        assert_eq!(
            PartRef::of(&stub(Some(in_segments.to_place()))),
            Some(in_segments)
        );
        assert_eq!(PartRef::of(&stub(Place::new(MARK - 1))), None);
        assert_eq!(PartRef::of(&stub(None)), None);
    }
}
