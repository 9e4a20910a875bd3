//! What the blinded nodes of the index name besides pages: its lower levels.

use cambium_trie::{Place, Stub};

/// Position of a part of the index, in bytes: within the section `index` of its checkpoint, or
/// relative to the first part of its shard. Of a block of an index in memory, its number takes the
/// place of the position, and the length is 0.
// In the top of a shard, the place of a blinded node encodes the relative position. Bit 63
// distinguishes it from a page address:
//
// BITS      MEANING
// 63        1
// 62 .. 16  offset from where the shard's parts begin, in bytes
// 15 .. 0   length, in bytes
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartRef {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

const MARK: u64 = 1 << 63;
const LEN_BITS: u32 = 16;

impl PartRef {
    /// Refers to the block with this number in a list that goes with the trie.
    pub(crate) const fn block(number: usize) -> Self {
        Self {
            offset: number as u64,
            len: 0,
        }
    }

    /// Returns the number of the block.
    pub(crate) const fn number(self) -> usize {
        self.offset as usize
    }

    /// Encodes a relative position as the place of a stub.
    ///
    /// # Panics
    ///
    /// If the offset is 2^47 or more, or the length 2^16 or more.
    pub(crate) fn to_place(self) -> Place {
        assert!(
            self.offset < MARK >> LEN_BITS && self.len < 1 << LEN_BITS,
            "{self:?}"
        );
        Place::new(MARK | self.offset << LEN_BITS | self.len).expect("not zero")
    }

    /// Returns the relative position of the part that the stub names, or `None` if it names a page
    /// or has no place.
    pub(crate) fn of(stub: &Stub) -> Option<Self> {
        let place = stub.place?.get();
        (place & MARK != 0).then_some(Self {
            offset: (place & !MARK) >> LEN_BITS,
            len: place & ((1 << LEN_BITS) - 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_trie::NodeRef;

    #[test]
    fn the_place_of_a_part_is_what_it_was_and_no_page_has_it() {
        let part = PartRef {
            offset: 0x0123,
            len: 0x45,
        };
        let place = part.to_place();
        assert_eq!(place.get(), 0x8000_0000_0123_0045);
        let stub = |place| Stub {
            place,
            ..Stub::bare(NodeRef::inline(&[0x80]).expect("one byte"))
        };
        assert_eq!(PartRef::of(&stub(Some(place))), Some(part));
        let last = PartRef {
            offset: (1 << 47) - 1,
            len: (1 << 16) - 1,
        };
        assert_eq!(PartRef::of(&stub(Some(last.to_place()))), Some(last));
        assert_eq!(PartRef::of(&stub(Place::new(MARK - 1))), None);
        assert_eq!(PartRef::of(&stub(None)), None);
    }
}
