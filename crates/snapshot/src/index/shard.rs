//! One shard of the index, and references to its parts on disk.

use crate::base::error::StateError;
use cambium_primitives::Path;
use cambium_trie::{Link, NodeView, PartialTrie, Place, Stub};
use std::sync::Arc;

/// Position of a part of the index, in bytes: within the section `index` of its checkpoint, or
/// relative to the first part of its shard.
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

/// One of the 256 shards of an index.
pub(super) struct Shard {
    /// The whole shard, or only its top if the parts are on disk.
    pub(super) trie: Arc<PartialTrie>,
    /// Number of pages that the whole shard names.
    pub(super) pages: u64,
    /// Offset of its parts, which are contiguous, in the section of the checkpoint, in bytes.
    pub(super) offset: u64,
    /// Length of its parts, in bytes.
    pub(super) len: u64,
}

impl Shard {
    /// Returns the position in the section of the part that a stub of the top names, or `None` if
    /// the stub names a page.
    pub(super) fn part_of(&self, stub: &Stub) -> Option<PartRef> {
        let part = PartRef::of(stub)?;
        Some(PartRef {
            offset: self.offset.saturating_add(part.offset),
            ..part
        })
    }
}

/// Copies a whole shard without cached node references, so that hashing the copy computes all nodes
/// above the pages. The blinded nodes keep their references.
pub(crate) fn without_cached_refs(whole: &PartialTrie) -> Result<PartialTrie, StateError> {
    let mut bare = PartialTrie::new(*whole.base()).committed_by(whole.commitment());
    let (mut none, with_refs) = (|_: &mut _, _, _: &_| Ok(None), false);
    let root = copy_with(
        whole,
        whole.root(),
        whole.base(),
        &mut bare,
        with_refs,
        &mut none,
    )?;
    bare.set_root(root);
    Ok(bare)
}

/// Copies the subtrie at `link` of `from`, whose path is `at`, to `into`, with its cached node
/// references, and returns the link of the copy. Where `instead` returns a link, the copy has that
/// in place of the subtrie. Recursion is bounded by the path's 128 nibbles.
pub(super) fn copy(
    from: &PartialTrie,
    link: Link,
    at: &Path,
    into: &mut PartialTrie,
    instead: &mut impl FnMut(&mut PartialTrie, Link, &Path) -> Result<Option<Link>, StateError>,
) -> Result<Link, StateError> {
    copy_with(from, link, at, into, true, instead)
}

fn copy_with(
    from: &PartialTrie,
    link: Link,
    at: &Path,
    into: &mut PartialTrie,
    with_refs: bool,
    instead: &mut impl FnMut(&mut PartialTrie, Link, &Path) -> Result<Option<Link>, StateError>,
) -> Result<Link, StateError> {
    if let Some(link) = instead(into, link, at)? {
        return Ok(link);
    }
    let copied = match from.visit(link) {
        NodeView::Empty => return Ok(Link::EMPTY),
        NodeView::Stub(stub) => return Ok(into.push_stub(*stub)),
        NodeView::Branch { children } => {
            let mut copies = [Link::EMPTY; 16];
            for (nibble, child) in (0u8..).zip(children) {
                let at = at.child(nibble);
                copies[usize::from(nibble)] =
                    copy_with(from, *child, &at, into, with_refs, instead)?;
            }
            into.push_branch(copies)
        }
        NodeView::Extension { path, child } => {
            let to = at.join(&path);
            let child = copy_with(from, child, &to, into, with_refs, instead)?;
            into.push_extension(at.len(), &to, child)
        }
        NodeView::Account {
            key,
            account,
            storage,
            ..
        } => {
            let at_storage = Path::account(&key);
            let storage = copy_with(from, storage, &at_storage, into, with_refs, instead)?;
            into.push_account(at.len(), &key, &account, storage)
        }
        NodeView::Slot { key, value, .. } => into.push_slot(at.len(), &key, value),
        NodeView::Entry { key, value, .. } => into.push_entry(at.len(), &key, value.clone()),
    };
    if let Some(node) = from.cached_ref(link).filter(|_| with_refs) {
        into.set_cached_ref(copied, node);
    }
    Ok(copied)
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
