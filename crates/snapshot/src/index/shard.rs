//! One shard of the index, and the names of its parts that are on disk.

use crate::base::error::StateError;
use cambium_primitives::Path;
use cambium_trie::{Link, NodeView, PartialTrie, Place, Stub};
use std::sync::Arc;

/// Where a part is in the section of its checkpoint, or from where its shard's parts begin.
// A stub of a top names it by a place that no page has:
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
    /// Panics if a shard's parts take 2^47 bytes, or this one 2^16.
    pub(crate) fn to_place(self) -> Place {
        assert!(
            self.offset < MARK >> LEN_BITS && self.len < 1 << LEN_BITS,
            "{self:?}"
        );
        Place::new(MARK | self.offset << LEN_BITS | self.len).expect("not zero")
    }

    /// `None` if the stub names a page, or nothing.
    pub(crate) fn of(stub: &Stub) -> Option<Self> {
        let place = stub.place?.get();
        (place & MARK != 0).then_some(Self {
            offset: (place & !MARK) >> LEN_BITS,
            len: place & ((1 << LEN_BITS) - 1),
        })
    }
}

/// A shard, or its top.
pub(super) struct Shard {
    /// The whole shard, or its top.
    pub(super) trie: Arc<PartialTrie>,
    /// Pages that the whole shard names.
    pub(super) pages: u64,
    /// Where its parts are in the section of the checkpoint, side by side.
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Shard {
    /// The part that a stub of the top stands for, if it is no page.
    pub(super) fn part_of(&self, stub: &Stub) -> Option<PartRef> {
        let part = PartRef::of(stub)?;
        Some(PartRef {
            offset: self.offset.saturating_add(part.offset),
            ..part
        })
    }
}

/// A copy of a shard without the references of its nodes: only those of its pages.
pub(crate) fn without_cached_refs(whole: &PartialTrie) -> Result<PartialTrie, StateError> {
    let mut bare = PartialTrie::new(*whole.base());
    let (mut none, references) = (|_: &mut _, _, _: &_| Ok(None), false);
    let root = copy_with(
        whole,
        whole.root(),
        whole.base(),
        &mut bare,
        references,
        &mut none,
    )?;
    bare.set_root(root);
    Ok(bare)
}

/// Copies the subtrie at `link` of `from`, which sits at `at`, to `into`, with its references.
/// Where `instead` gives a link, that takes the subtrie's place. Recursion is bounded by the path's
/// 128 nibbles.
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
    references: bool,
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
                    copy_with(from, *child, &at, into, references, instead)?;
            }
            into.push_branch(copies)
        }
        NodeView::Extension { path, child } => {
            let to = at.join(&path);
            let child = copy_with(from, child, &to, into, references, instead)?;
            into.push_extension(at.len(), &to, child)
        }
        NodeView::Account {
            key,
            account,
            storage,
            ..
        } => {
            let at_storage = Path::account(&key);
            let storage = copy_with(from, storage, &at_storage, into, references, instead)?;
            into.push_account(at.len(), &key, &account, storage)
        }
        NodeView::Slot { key, value, .. } => into.push_slot(at.len(), &key, value),
    };
    if let Some(memo) = from.memo(link).filter(|_| references) {
        into.set_memo(copied, memo);
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
