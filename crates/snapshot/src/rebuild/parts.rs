//! Restoring damaged parts of an index on disk from the pages below them.
//!
//! The top above a part has its hash and its path. The pages below that path are in the segments, with older ones that they have
//! replaced: of pages in each other's way the newest counts. This is wrong where all leaves of a page were deleted, since
//! no newer page is in its place. So a part is restored only if it has the right hash.

use super::tries::{IndexEntry, trie_of_entries};
use crate::{
    base::{counters::Counters, error::StateError},
    index::LostPart,
};
use cambium_primitives::Path;
use cambium_store::{PageAddr, Segments};
use cambium_trie::{Commitment, PartialTrie};
use std::collections::{BTreeMap, HashSet};

/// Makes damaged parts, given in path order, again from the pages in the segments, except for the pages `retired`, which the
/// index no longer names. Returns the subtrie of each, or `None` if its pages do not have its hash. Reads all segments once.
///
/// # Errors
///
/// [`StateError::Store`] if the disk fails.
pub fn restore_parts(
    lost: &[LostPart],
    segments: &Segments,
    retired: &[PageAddr],
    commitment: Commitment,
) -> Result<Vec<Option<PartialTrie>>, StateError> {
    let retired: HashSet<_> = retired.iter().collect();
    let mut newest: Vec<BTreeMap<Path, PageAddr>> = lost.iter().map(|_| BTreeMap::new()).collect();
    let mut all = segments.live();
    all.sort_unstable_by_key(|segment| segment.sequence);
    for segment in all {
        // Pages that can't be read are missing from the result, which has another hash then.
        let scan = segments.scan(segment.segment, 0).into_iter().flatten();
        for (addr, page) in scan.filter_map(Result::ok) {
            let prefix = page.prefix();
            let next = lost.partition_point(|part| part.path <= prefix);
            let Some(part) = next.checked_sub(1) else {
                continue;
            };
            if prefix.starts_with(&lost[part].path) && !retired.contains(&addr) {
                put_newer(&mut newest[part], prefix, addr);
            }
        }
    }
    let counters = Counters::default();
    let made = |(part, pages): (&LostPart, BTreeMap<Path, PageAddr>)| {
        let entries = pages.into_values().map(|addr| {
            let page = segments.read(addr)?;
            IndexEntry::of(addr, &page, commitment, &counters)
        });
        let entries = entries.collect::<Result<Vec<_>, StateError>>()?;
        let trie = trie_of_entries(&entries, &part.path, commitment, &counters)?;
        let node = trie.as_stub(trie.root()).map(|root| root.node);
        Ok((node == Some(part.stub.node)).then_some(trie))
    };
    let unless_damaged = |made: Result<Option<PartialTrie>, StateError>| match made {
        Err(error) if error.is_damage() => Ok(None),
        made => made,
    };
    let each = lost.iter().zip(newest);
    each.map(|one| unless_damaged(made(one))).collect()
}

/// Adds a page that is newer than all of `pages`, in place of those in its way.
fn put_newer(pages: &mut BTreeMap<Path, PageAddr>, prefix: Path, addr: PageAddr) {
    let below = pages.range(prefix..);
    let below = below.take_while(|(path, _)| path.starts_with(&prefix));
    let mut in_its_way: Vec<_> = below.map(|(path, _)| *path).collect();
    in_its_way.extend((0..prefix.len()).map(|len| prefix.prefix(len)));
    for path in in_its_way {
        pages.remove(&path);
    }
    pages.insert(prefix, addr);
}
