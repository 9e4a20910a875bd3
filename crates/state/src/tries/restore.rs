//! Tries above the base restored from references in the block log, without the pages of what has changed.
//!
//! ```text
//!   changes     of all blocks, as one                    the log's blocks
//!   references  of each subtrie: the newest that hold    the log's references
//!   trie        index -> subtries under their new references -> other changes applied -> root
//! ```
//!
//! The subtries are blinded nodes whose pages are read when they are needed: see `unread.rs`.

use crate::{
    log::references::{Root, Subtrie},
    tries::{
        base::Base,
        portions::{self, PORTION_LEAVES_MIN, Portion},
        resolve::Resolver,
        shards::TrieShards,
        slots::{PagesAre, SlotThreads, pages_ahead},
        unread::{Unread, UnreadShard},
        update::{by_shard, changes_of, leaves_of, paths_of},
    },
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, AccountDiff, AccountUpdate, Changes, Path};
use cambium_snapshot::{
    CHUNK_KEYS, Counters, DirtyShard, PrefetchedPages, ReadCause, StateError, hash_tries,
    pool::{Workers, on_threads},
    update_error,
};
use cambium_trie::{NodeRef, PartialTrie, SHARDS, Stub};
use std::{collections::BTreeMap, sync::Arc};

/// Consecutive blocks, and references of what they have changed.
pub(crate) struct Segment<'a> {
    /// References in the state after these blocks, sorted by path. None if the log has none: the pages are read.
    pub(crate) subtries: &'a [Subtrie],
    /// What the blocks have changed, oldest first.
    pub(crate) blocks: Vec<&'a Changes>,
}

/// The newest references that hold, by path. None is within another.
type Known = BTreeMap<Path, Root>;

impl TrieShards {
    /// The tries after `segments`, oldest first, on `base`, which is a snapshot alone. `changes` are those of all segments as
    /// one. Nothing is verified: the caller compares the root.
    pub(crate) fn restored(
        base: &Base,
        segments: &[Segment<'_>],
        changes: &Changes,
        counters: &Counters,
    ) -> Result<Self, StateError> {
        let mut tries = Self::on(base, counters)?;
        let changes = changes.accounts();
        let count = portions::count(
            Workers::Computing,
            changes.len(),
            || leaves_of(changes),
            PORTION_LEAVES_MIN,
        );
        let portions = portions::divide(&mut tries.shards, changes, count, |change| {
            change.path[0].into()
        });
        let restored = on_threads(Workers::Computing, portions, |portion| {
            let Portion {
                first,
                shards,
                items,
            } = portion;
            let mut resolver = Resolver::new(base, ReadCause::Trie);
            let mut unread = Vec::new();
            for own in by_shard(items) {
                let number = usize::from(own[0].path[0]);
                let shard = &mut shards[number - first];
                let known = newest(segments, number);
                let left = restore_shard(shard, &known, own, &mut resolver, counters)?;
                hash_tries(&mut [&mut shard.trie], counters);
                unread.push((number, left));
            }
            Ok(unread)
        })?;
        let mut shards: Vec<_> = (0..SHARDS).map(|_| UnreadShard::default()).collect();
        for (number, unread) in restored.into_iter().flatten() {
            shards[number] = unread;
        }
        let snapshot = base.snapshot.clone();
        tries.unread = Some(Arc::new(Unread { snapshot, shards }));
        tries.build_top_levels(base, counters)?;
        Ok(tries)
    }

    /// A copy of a shard with all leaves that have changed in its unread subtries, which are read for it in batches. `None` if
    /// it has no unread subtrie.
    pub(crate) fn completed(&self, shard: usize) -> Result<Option<DirtyShard>, StateError> {
        let Some(unread) = self.unread.as_deref() else {
            return Ok(None);
        };
        let changes = &unread.shards[shard].changes;
        if changes.is_empty() {
            return Ok(None);
        }
        let base = Base {
            snapshot: unread.snapshot.clone(),
            intermediate: None,
        };
        let DirtyShard { mut trie, mut held } = self.shards[shard].clone();
        let why = ReadCause::Merge;
        let mut resolver = Resolver::new(&base, why).above(Some(unread));
        let paths: Vec<_> = all_paths_of(changes).collect();
        for chunk in paths.chunks(CHUNK_KEYS) {
            let ahead = pages_ahead(|_| &trie, || chunk.iter().copied(), &base, why)?;
            resolver.read_ahead(ahead);
            for path in chunk {
                trie.load_leaf(path, &mut resolver).map_err(update_error)?;
            }
            for (addr, page) in resolver.taken() {
                held.hold(addr, page);
            }
        }
        Ok(Some(DirtyShard { trie, held }))
    }
}

/// The paths of all leaves of sorted changes, in order.
fn all_paths_of(changes: &[AccountDiff]) -> impl Iterator<Item = Path> {
    changes.iter().flat_map(|change| {
        let slots = change.slots.iter();
        let slots = slots.map(|(slot, _)| Path::slot(&change.path, slot));
        std::iter::once(Path::account(&change.path)).chain(slots)
    })
}

/// Whether a change removes all slots that the account had.
fn wipes(change: &AccountDiff) -> bool {
    change.wipe || change.account == AccountUpdate::Delete
}

/// The subtrie of a sorted list that contains `path`, by its place in the list. None is within another.
fn over(roots: &[Path], path: &Path) -> Option<usize> {
    let at = roots.partition_point(|root| root <= path).checked_sub(1)?;
    path.starts_with(&roots[at]).then_some(at)
}

/// The newest references of one shard that hold after all segments.
fn newest(segments: &[Segment<'_>], shard: usize) -> Known {
    let mut known = Known::new();
    for segment in segments {
        let of_shard = |subtrie: &Subtrie| usize::from(subtrie.0.packed()[0]);
        let all = segment.subtries;
        let from = all.partition_point(|subtrie| of_shard(subtrie) < shard);
        let len = all[from..].partition_point(|subtrie| of_shard(subtrie) == shard);
        let own = &all[from..from + len];
        let roots: Vec<_> = own.iter().map(|(root, _)| *root).collect();
        for blocks in &segment.blocks {
            let changes = changes_of(blocks.accounts(), shard);
            for change in changes.iter().filter(|change| wipes(change)) {
                forget_under(&mut known, &Path::account(&change.path));
            }
            for leaf in all_paths_of(changes) {
                // What is listed again replaces what was known.
                if over(&roots, &leaf).is_none() {
                    forget_over(&mut known, &leaf);
                }
            }
        }
        for (path, root) in own {
            forget_under(&mut known, path);
            forget_over(&mut known, path);
            known.insert(*path, *root);
        }
    }
    known
}

/// Forgets the references of all subtries within the one at `path`, and its own.
fn forget_under(known: &mut Known, path: &Path) {
    while let Some((root, _)) = known.range(path..).next()
        && root.starts_with(path)
    {
        let root = *root;
        known.remove(&root);
    }
}

/// Forgets the reference of the subtrie that contains `path`.
fn forget_over(known: &mut Known, path: &Path) {
    if let Some((root, _)) = known.range(..=path).next_back()
        && path.starts_with(root)
    {
        let root = *root;
        known.remove(&root);
    }
}

/// Whether sorted changes change the subtrie at `root`, and the reference of that says all about it: a storage that was
/// wiped has a new beginning.
fn is_changed(changes: &[AccountDiff], root: &Path) -> bool {
    let Some(account) = root.account_part() else {
        let at = changes.partition_point(|change| Path::account(&change.path) < *root);
        let next = changes.get(at);
        return next.is_some_and(|change| Path::account(&change.path).starts_with(root));
    };
    let Ok(at) = changes.binary_search_by(|change| change.path.cmp(&account)) else {
        return false;
    };
    let change = &changes[at];
    let path = |slot: &B256| Path::slot(&change.path, slot);
    let next = change.slots.partition_point(|(slot, _)| path(slot) < *root);
    let next = change.slots.get(next);
    !wipes(change) && next.is_some_and(|(slot, _)| path(slot).starts_with(root))
}

/// Divides changes into those in the subtries at `roots`, and the others.
fn divide(changes: &[AccountDiff], roots: &[Path]) -> (Vec<AccountDiff>, Vec<AccountDiff>) {
    let (mut within, mut others) = (Vec::new(), Vec::new());
    for change in changes {
        let account = Path::account(&change.path);
        if over(roots, &account).is_some_and(|at| roots[at].len() < ACCOUNT_NIBBLES) {
            within.push(change.clone());
            continue;
        }
        let is_within =
            |(slot, _): &(B256, U256)| over(roots, &Path::slot(&change.path, slot)).is_some();
        let slots = change.slots.iter().copied();
        let (covered, slots): (Vec<_>, Vec<_>) = slots.partition(is_within);
        if !covered.is_empty() {
            within.push(AccountDiff {
                path: change.path,
                account: AccountUpdate::Keep,
                wipe: false,
                slots: covered,
            });
        }
        if !slots.is_empty() || change.wipe || change.account != AccountUpdate::Keep {
            let (account, wipe) = (change.account.clone(), change.wipe);
            others.push(AccountDiff {
                path: change.path,
                account,
                wipe,
                slots,
            });
        }
    }
    (within, others)
}

/// Puts the subtries with known references into a shard at the base, and applies the other changes. Returns the
/// subtries. The shard is not hashed.
fn restore_shard(
    shard: &mut DirtyShard,
    known: &Known,
    changes: &[AccountDiff],
    resolver: &mut Resolver<'_>,
    counters: &Counters,
) -> Result<UnreadShard, StateError> {
    let DirtyShard { trie, held } = shard;
    let base = resolver.base();
    let index = &base.snapshot.index;
    let mut parts = index.prefetch_parts(paths_of(changes))?;
    let mut found = Vec::new();
    for (path, root) in known {
        // Another snapshot may have had another page there. Only what the index has takes no page.
        if is_changed(changes, path) {
            let node = index.node_at(path, &mut parts)?;
            found.extend(
                node.filter(|node| node.depth == path.len())
                    .map(|_| (path, root)),
            );
        }
    }
    resolver.read_ahead((PrefetchedPages::default(), parts));
    let mut roots = Vec::with_capacity(found.len());
    for (path, root) in found {
        let stub = Stub {
            node: NodeRef::hash(root.hash),
            kind: Some(root.kind),
            place: None,
        };
        if trie.blind(path, stub, resolver).map_err(update_error)? {
            roots.push(*path);
        }
    }
    let (within, others) = divide(changes, &roots);
    apply(trie, &others, resolver, counters)?;
    for (addr, page) in resolver.taken() {
        held.hold(addr, page);
    }
    Ok(UnreadShard {
        roots,
        changes: within,
    })
}

/// Applies changes whose pages are not in memory.
fn apply(
    trie: &mut PartialTrie,
    changes: &[AccountDiff],
    resolver: &mut Resolver<'_>,
    counters: &Counters,
) -> Result<(), StateError> {
    let (base, why) = (resolver.base(), ReadCause::Trie);
    resolver.read_ahead(pages_ahead(|_| &*trie, || paths_of(changes), base, why)?);
    let spread = SlotThreads {
        pages: PagesAre::OnDisk,
        counters,
    };
    let applied = trie.apply_with(changes, resolver, Some(&spread));
    applied.map_err(update_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_primitives::Account;
    use cambium_trie::NodeKind;

    /// The account whose path begins with these nibbles, and ends with zeros.
    fn account(nibbles: &[u8]) -> B256 {
        let path = nibbles
            .iter()
            .fold(Path::EMPTY, |path, nibble| path.child(*nibble));
        B256::right_padding_from(path.packed())
    }

    fn root(nibbles: &[u8]) -> Path {
        Path::from_nibbles(nibbles)
    }

    fn put(nibbles: &[u8]) -> AccountDiff {
        AccountDiff {
            path: account(nibbles),
            account: AccountUpdate::Put(Account::default()),
            wipe: false,
            slots: vec![],
        }
    }

    fn with_slots(nibbles: &[u8], slots: &[u8]) -> AccountDiff {
        let slot = |slot: &u8| (B256::right_padding_from(&[*slot]), U256::from(1));
        AccountDiff {
            account: AccountUpdate::Keep,
            slots: slots.iter().map(slot).collect(),
            ..put(nibbles)
        }
    }

    fn hash(byte: u8) -> Root {
        Root {
            kind: NodeKind::Branch,
            hash: B256::repeat_byte(byte),
        }
    }

    #[test]
    fn the_newest_reference_holds_unless_a_later_block_changed_more() {
        let storage = Path::account(&account(&[1, 3]));
        let first = [
            (root(&[1, 1, 1]), hash(1)),
            (root(&[1, 1, 2]), hash(2)),
            (root(&[1, 2]), hash(3)),
            (storage.child(4), hash(4)),
            (storage.child(5), hash(5)),
            (root(&[1, 4]), hash(6)),
            (root(&[1, 5, 1]), hash(7)),
        ];
        let second = [
            // Larger than what is known, smaller, and the same.
            (root(&[1, 1]), hash(8)),
            (root(&[1, 2, 7]), hash(9)),
            (root(&[1, 4]), hash(10)),
        ];
        let changes = [
            Changes::new(vec![put(&[1, 1, 1]), put(&[1, 5, 1])]),
            // A block without references, and one whose list has not all that it changes.
            Changes::new(vec![with_slots(&[1, 3], &[0x41])]),
            Changes::new(vec![put(&[1, 2, 7]), put(&[1, 5, 1, 9])]),
        ];
        let segments = [
            Segment {
                subtries: &first,
                blocks: vec![&changes[0]],
            },
            Segment {
                subtries: &[],
                blocks: vec![&changes[1]],
            },
            Segment {
                subtries: &second,
                blocks: vec![&changes[2]],
            },
        ];
        let expected = [
            (root(&[1, 1]), hash(8)),
            (root(&[1, 2, 7]), hash(9)),
            (storage.child(5), hash(5)),
            (root(&[1, 4]), hash(10)),
        ];
        let all: Known = (0..SHARDS)
            .flat_map(|shard| newest(&segments, shard))
            .collect();
        assert_eq!(all, expected.into());
    }

    #[test]
    fn wiped_storages_have_no_references_from_before() {
        let storage = Path::account(&account(&[1, 3]));
        let known = [(storage.child(4), hash(4))];
        let wiped = AccountDiff {
            wipe: true,
            ..put(&[1, 3])
        };
        let changes = [Changes::default(), Changes::new(vec![wiped.clone()])];
        let segments = changes.each_ref().map(|changes| Segment {
            subtries: if changes.is_empty() { &known[..] } else { &[] },
            blocks: vec![changes],
        });
        assert_eq!(newest(&segments, 0x13), Known::new());
        // Nor may those from after it be used, where it is not known what was there.
        let slots = with_slots(&[1, 3], &[0x41]).slots;
        assert!(is_changed(
            &[with_slots(&[1, 3], &[0x41])],
            &storage.child(4)
        ));
        assert!(!is_changed(
            &[with_slots(&[1, 3], &[0x41])],
            &storage.child(5)
        ));
        assert!(!is_changed(
            &[AccountDiff { slots, ..wiped }],
            &storage.child(4)
        ));
    }

    #[test]
    fn changes_are_divided_by_the_subtries_that_they_are_in() {
        let storage = Path::account(&account(&[1, 3]));
        let roots = [root(&[1, 2]), storage.child(4)];
        let changes = [
            put(&[1, 1]),
            with_slots(&[1, 2, 1], &[0x41]),
            with_slots(&[1, 3], &[0x31, 0x41, 0x4f, 0x51]),
            with_slots(&[1, 4], &[0x41]),
        ];
        let (within, others) = divide(&changes, &roots);
        let expected = [changes[1].clone(), with_slots(&[1, 3], &[0x41, 0x4f])];
        assert_eq!(within, expected);
        let rest = with_slots(&[1, 3], &[0x31, 0x51]);
        assert_eq!(others, [changes[0].clone(), rest, changes[3].clone()]);
        // All slots of an account that stays as it is are within.
        let (within, others) = divide(&[with_slots(&[1, 3], &[0x41])], &roots);
        assert_eq!((within.len(), others.len()), (1, 0));
    }
}
