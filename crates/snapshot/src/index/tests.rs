//! Tests of an index in blocks, and of one in parts: it answers as the trie that was divided, and a merge shares with the
//! old index what it does not change.

use super::{
    block::Block,
    lookup::{HeldParts, Index, IndexLookup, Opened, OpenedShard, TrieRef},
    openings::Turn,
    part_ref::PartRef,
    parts::PartCache,
    read::{LoadedIndex, read_index},
    shard::copy,
    write::{IndexWriter, TouchedNodes},
};
use crate::{
    base::{counters::Counters, layout::shard_prefix},
    merge::places,
    pages::Pages,
};
use alloy_primitives::{B256, U256};
use cambium_disk::{Disk, FaultyDisk};
use cambium_primitives::{Account, Path};
use cambium_seeds::Random;
use cambium_store::{Checkpoint, SegmentOptions, Segments};
use cambium_trie::{
    Batch, Commitment, LeafValue, Link, Lookup, NodeKind, NodeRef, NodeView, PartialTrie, Place,
    SHARDS, Stub,
};
use std::{collections::HashSet, sync::Arc};

const SHARD: usize = 0x5a;

fn key(random: &mut Random) -> B256 {
    let mut key = B256::ZERO;
    key.iter_mut()
        .for_each(|byte| *byte = random.below(256) as u8);
    key
}

/// The address of a page; one in eight has no short place.
fn page(random: &mut Random) -> Place {
    let segment = match random.below(8) {
        0 => 1 + random.below(1 << 22),
        _ => 1 + random.below(1 << 14),
    };
    let len = random.below(1 << 9);
    Place::new(segment << 40 | random.below(1 << 24) << 16 | len).unwrap()
}

/// A shard of random accounts, of which some have slots. Subtries of a few leaves are pages. Also
/// returns the paths of its leaves.
fn shard(random: &mut Random, accounts: usize, depth: usize) -> (PartialTrie, Vec<Path>) {
    let mut leaves = Vec::new();
    for at in 0..accounts {
        let mut account = key(random);
        account[0] = SHARD as u8;
        let fields = Account {
            nonce: at as u64,
            ..Account::default()
        };
        leaves.push((Path::account(&account), LeafValue::Account(fields)));
        let slots = if at % 500 == 3 { 600 } else { 0 };
        for slot in 0..slots {
            let path = Path::slot(&account, &key(random));
            leaves.push((path, LeafValue::Slot(U256::from(slot + 1))));
        }
    }
    leaves.sort_by_key(|(path, _)| *path);
    let paths: Vec<_> = leaves.iter().map(|(path, _)| *path).collect();
    let mut trie = PartialTrie::new(shard_prefix(SHARD));
    let root = trie
        .graft_leaves(&shard_prefix(SHARD), leaves.into_iter(), std::iter::empty())
        .unwrap();
    trie.set_root(root);
    trie.hash_nodes([root], &mut Batch::new());
    for path in &paths {
        let at = match path.len() {
            64 => path.prefix(depth),
            _ => path.prefix(66),
        };
        let found = trie.find(&at).filter(|link| !link.is_stub());
        if found.is_some_and(|link| !holds_storage(&trie, link)) {
            trie.replace_by_stub(&at, Some(page(random))).unwrap();
        }
    }
    (trie, paths)
}

/// Whether an account with slots is below `link`.
fn holds_storage(trie: &PartialTrie, link: Link) -> bool {
    match trie.visit(link) {
        NodeView::Branch { children } => children.iter().any(|child| holds_storage(trie, *child)),
        NodeView::Extension { child, .. } => holds_storage(trie, child),
        NodeView::Account { storage, .. } => !storage.is_empty(),
        _ => false,
    }
}

/// A full trie of pages, `levels` below the root of the shard.
fn full(random: &mut Random, levels: usize) -> PartialTrie {
    fn node(trie: &mut PartialTrie, random: &mut Random, levels: usize) -> Link {
        if levels == 0 {
            return trie.push_stub(Stub {
                node: NodeRef::hash(key(random)),
                kind: Some(NodeKind::Branch),
                place: Place::new(1 << 40 | random.below(1 << 24) << 16 | 63),
            });
        }
        let children = std::array::from_fn(|_| node(trie, random, levels - 1));
        trie.push_branch(children)
    }
    let mut trie = PartialTrie::new(shard_prefix(SHARD));
    let root = node(&mut trie, random, levels);
    trie.set_root(root);
    trie.hash_nodes([root], &mut Batch::new());
    trie
}

fn encoded(trie: &PartialTrie) -> Vec<u8> {
    let mut bytes = Vec::new();
    trie.encode_to(&mut bytes);
    bytes
}

fn cache(bytes_max: u64) -> Arc<PartCache> {
    let counters = Arc::new(Counters::default());
    Arc::new(PartCache::new(bytes_max, Commitment::default(), counters))
}

/// An index in memory in which one shard is `whole`, and all others are empty.
fn index(disk: &Arc<dyn Disk>, whole: &PartialTrie) -> Index {
    index_of(disk, whole, cache(u64::MAX))
}

/// The same index with the memory that `cache` allows.
fn index_of(disk: &Arc<dyn Disk>, whole: &PartialTrie, cache: Arc<PartCache>) -> Index {
    let writer = IndexWriter::whole(disk.clone(), Arc::default(), cache, None, false).unwrap();
    for shard in 0..SHARDS {
        match shard {
            SHARD => writer.put(shard, whole, whole.counts().1 as u64).unwrap(),
            _ => writer
                .put(shard, &PartialTrie::new(shard_prefix(shard)), 0)
                .unwrap(),
        }
    }
    writer.finish().unwrap().seal().unwrap().0
}

/// The blocks of an index, by their addresses in memory.
fn blocks(index: &Index) -> Vec<Arc<Block>> {
    fn add(blocks: &[Arc<Block>], all: &mut Vec<Arc<Block>>) {
        for block in blocks {
            all.push(block.clone());
            add(block.below(), all);
        }
    }
    let mut all = Vec::new();
    add(&index.shards[SHARD].blocks, &mut all);
    all
}

/// The pages of a shard with their paths, found node by node.
fn pages_by_parts(index: &Index) -> Vec<(Path, Stub)> {
    let (mut found, mut held) = (Vec::new(), HeldParts::default());
    let top = index.top(SHARD);
    let mut todo = vec![(TrieRef::Resident(top), top.root(), shard_prefix(SHARD))];
    while let Some((trie, link, at)) = todo.pop() {
        match trie.visit(link) {
            NodeView::Stub(stub) => match index.part_at(stub, &at, &mut held).unwrap() {
                Some(part) => todo.push((part.trie, part.link, at)),
                None => found.push((at, *stub)),
            },
            NodeView::Branch { children } => {
                let children = children.iter().zip(0u8..16).rev();
                todo.extend(
                    children.map(|(child, nibble)| (trie.clone(), *child, at.child(nibble))),
                );
            }
            NodeView::Extension { path, child } => todo.push((trie.clone(), child, at.join(&path))),
            NodeView::Account { key, storage, .. } => {
                todo.push((trie.clone(), storage, Path::account(&key)));
            }
            _ => {}
        }
    }
    found
}

fn answer(lookup: &Lookup<'_>) -> String {
    match lookup {
        Lookup::Stub { stub, depth } => format!("{stub:?} at {depth}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn an_index_in_blocks_answers_as_the_trie_that_was_divided() {
    for seed in cambium_seeds::seeds!(0..8) {
        let mut random = Random::new(seed);
        let accounts = [0, 1, 2, 40, 3000, 9000][seed as usize % 6];
        let depth = 4 + seed as usize % 2;
        let (whole, mut paths) = shard(&mut random, accounts, depth);
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(seed));
        let index = index(&disk, &whole);
        assert_eq!(encoded(&index.whole(SHARD).unwrap()), encoded(&whole));
        assert!(accounts < 3000 || blocks(&index).len() > 10, "{accounts}");
        for _ in 0..500 {
            let mut account = key(&mut random);
            account[0] = SHARD as u8;
            paths.push(Path::account(&account));
            let at = random.below(paths.len() as u64);
            let near = paths[at as usize].account_part().unwrap();
            paths.push(Path::slot(&near, &key(&mut random)));
        }
        let mut held = HeldParts::default();
        for path in &paths {
            let got = match index.look_up(path, &mut held).unwrap() {
                IndexLookup::Resident(lookup) => answer(&lookup),
                IndexLookup::Page { stub, depth } => format!("{stub:?} at {depth}"),
            };
            assert_eq!(got, answer(&whole.lookup(path)), "{path}");
            let at = path.prefix(2 + random.below(path.len() as u64 - 1) as usize);
            let node = index.node_at(&at, &mut held).unwrap();
            let node = node.map(|node| (node.trie.as_stub(node.link).unwrap(), node.depth));
            let expected = whole.find_or_stub(&at);
            let expected = expected.map(|(link, depth)| (whole.as_stub(link).unwrap(), depth));
            assert_eq!(node, expected, "{at}");
        }
        let mut named = Vec::new();
        index.shards[SHARD].each_page(&mut |addr| named.push(addr.to_u64()));
        let mut pages: Vec<_> = pages_by_parts(&index)
            .into_iter()
            .map(|(at, stub)| {
                assert_eq!(
                    whole.find(&at).and_then(|link| whole.as_stub(link)),
                    Some(stub)
                );
                stub.place.unwrap().get()
            })
            .collect();
        assert_eq!(pages.len(), whole.counts().1);
        named.sort_unstable();
        pages.sort_unstable();
        assert_eq!(pages, named);
    }
}

/// A dirty trie that has expanded the way to `path` in a full trie, and the page at its end.
fn expanded(whole: &PartialTrie, path: &Path) -> PartialTrie {
    let mut dirty = PartialTrie::new(*whole.base());
    let mut blind = |dirty: &mut PartialTrie, link: Link, at: &Path| {
        let is_on_the_way = path.starts_with(at) && !link.is_stub();
        let stub = whole
            .as_stub(link)
            .filter(|_| !link.is_empty() && !is_on_the_way);
        Ok(stub.map(|stub| {
            dirty.push_stub(Stub {
                place: None,
                ..stub
            })
        }))
    };
    let root = copy(whole, whole.root(), whole.base(), &mut dirty, &mut blind).unwrap();
    dirty.set_root(root);
    let (_, depth) = dirty.find_or_stub(path).unwrap();
    let parent = dirty.find(&path.prefix(depth - 1)).unwrap();
    let key = path.account_part().unwrap();
    let leaf = dirty.push_account(depth, &key, &Account::default(), Link::EMPTY);
    dirty.set_child(parent, path.nibble(depth - 1), leaf);
    dirty
}

/// Gives the page at the end of `path` another address and reference. Returns the changed trie, and the
/// nodes above the page.
fn edited(trie: &PartialTrie, path: &Path, to: Stub) -> (PartialTrie, TouchedNodes) {
    let (mut trie, mut touched) = (trie.clone(), TouchedNodes::default());
    let mut link = trie.root();
    let mut depth = trie.base().len();
    while let NodeView::Branch { children } = trie.visit(link) {
        let nibble = path.nibble(depth);
        let next = children[usize::from(nibble)];
        trie.clear_cached_ref(link);
        trie.set_child(link, nibble, next);
        touched.insert(link);
        (link, depth) = (next, depth + 1);
    }
    trie.set_stub(link, to);
    trie.hash_nodes(touched.iter().copied(), &mut Batch::new());
    (trie, touched)
}

#[test]
fn a_merge_makes_the_blocks_above_its_pages_anew_and_shares_all_others() {
    let mut random = Random::new(3);
    let mut whole = full(&mut random, 4);
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(3));
    let mut old = index(&disk, &whole);
    for round in 0..5 {
        let mut account = key(&mut random);
        account[0] = SHARD as u8;
        let path = Path::account(&account);
        let opened = old.opened(SHARD, &expanded(&whole, &path), None).unwrap();
        let Some((link, _)) = opened.trie.find_or_stub(&path) else {
            panic!("no page at {path}")
        };
        assert!(PartRef::of(&opened.trie.as_stub(link).unwrap()).is_none());
        let to = Stub {
            node: NodeRef::hash(key(&mut random)),
            kind: Some(NodeKind::Branch),
            place: Some(page(&mut random)),
        };
        let (after, touched) = edited(&opened.trie, &path, to);
        whole = edited(&whole, &path, to).0;
        let cache = cache(u64::MAX);
        let writer =
            IndexWriter::changes(disk.clone(), Arc::default(), cache.clone(), &old).unwrap();
        for shard in (0..SHARDS).filter(|shard| *shard != SHARD) {
            assert!(writer.put_unchanged(shard).unwrap());
        }
        let pages = old.pages_of(SHARD);
        writer
            .put_edited(SHARD, &opened, &after, Some(&touched), pages)
            .unwrap();
        let (new, bytes) = writer.finish().unwrap().seal().unwrap();
        assert_eq!(encoded(&new.whole(SHARD).unwrap()), encoded(&whole));
        assert_eq!(new.pages(), whole.counts().1 as u64);
        let before: HashSet<_> = blocks(&old).iter().map(Arc::as_ptr).collect();
        let (all, made) = (blocks(&new), blocks(&new));
        let made = made
            .iter()
            .filter(|block| !before.contains(&Arc::as_ptr(block)));
        // One block on each level.
        assert_eq!(
            (all.len(), made.count()),
            (16 + 256 + 4096, 3),
            "round {round}"
        );
        assert!(bytes <= 8 << 10, "{bytes} bytes of changes");
        let checkpoint = Checkpoint::open(&disk, new.files().sequence()).unwrap();
        let Ok(LoadedIndex::Index(read)) = read_index(&checkpoint, &cache) else {
            panic!("an index that was just written");
        };
        assert_eq!(encoded(&read.whole(SHARD).unwrap()), encoded(&whole));
        assert_eq!(read.memory_bytes(), new.memory_bytes());
        old = new;
    }
}

#[test]
fn all_blocks_with_pages_to_be_moved_have_their_turn_a_few_at_a_time() {
    let mut random = Random::new(5);
    let (with_storages, _) = shard(&mut random, 5_000, 5);
    for whole in [full(&mut random, 4), with_storages] {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(5));
        let old = index(&disk, &whole);
        let named: Vec<_> = places(&whole).into_iter().map(|(addr, _)| addr).collect();
        let wanted: HashSet<_> = named.into_iter().step_by(50).collect();
        let mut unchanged = PartialTrie::new(*whole.base());
        let root = unchanged.push_stub(whole.as_stub(whole.root()).unwrap());
        unchanged.set_root(root);
        let named_by = |opened: &OpenedShard<'_>| {
            let Opened::Blocks(unopened) = &opened.opened else {
                panic!("an index in memory")
            };
            let joined = unopened.joined(&opened.trie);
            assert_eq!(encoded(&joined), encoded(&whole));
            places(&opened.trie)
        };
        let without = named_by(&old.opened(SHARD, &unchanged, None).unwrap());
        let (mut seen, mut turns) = (HashSet::new(), 0);
        while !wanted.is_subset(&seen) {
            let turn = Turn {
                number: turns,
                is_moved: &|addr| wanted.contains(addr),
            };
            let opened = old.opened(SHARD, &unchanged, Some(&turn)).unwrap();
            let named = named_by(&opened);
            assert!(named.len() <= without.len() + 256, "{} pages", named.len());
            seen.extend(named.into_iter().map(|(addr, _)| addr));
            turns += 1;
            // A turn has 3 KiB of blocks.
            let needed = old.memory_bytes() as u64 / (3 << 10);
            assert!(turns <= 4 * needed + 8, "{turns} turns, {needed} needed");
        }
    }
}

/// The pages of an empty state on `disk`.
fn empty_pages(disk: &Arc<dyn Disk>) -> Arc<Pages> {
    let sizes = SegmentOptions {
        segment_bytes_max: 32 << 10,
        ..SegmentOptions::default()
    };
    let (segments, _) = Segments::open(disk.clone(), sizes, 7, None, &[]).unwrap();
    segments.settle().unwrap();
    Arc::new(Pages::new(segments, 1 << 20, Arc::new(Counters::default())))
}

/// The index of the newest checkpoint, with its parts in the segments of `pages`, and `bytes_max` bytes of memory.
fn read_from_segments(disk: &Arc<dyn Disk>, pages: &Arc<Pages>, bytes_max: u64) -> Index {
    let sequence = Checkpoint::newest(&**disk).unwrap().unwrap();
    let checkpoint = Checkpoint::open(disk, sequence).unwrap();
    let cache = cache(bytes_max);
    let Ok(LoadedIndex::InSegments(found)) = read_index(&checkpoint, &cache) else {
        panic!("an index whose parts are in the segments");
    };
    let (index, damage) = found.open(pages, &cache).unwrap();
    assert!(damage.is_none());
    assert_eq!(index.is_resident(), bytes_max > 0);
    index
}

#[test]
fn an_index_in_segments_is_what_a_fresh_one_is_after_many_merges_that_write_one_part_each() {
    let mut random = Random::new(8);
    let mut whole = full(&mut random, 3);
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(8));
    let pages = empty_pages(&disk);
    // It is too large for its memory, and in the checkpoint.
    let mut old = index_of(&disk, &whole, cache(0));
    assert!(!old.is_resident() && !old.is_in_segments());
    let (mut live, mut further) = (HashSet::new(), 0);
    for round in 0..60u64 {
        let mut account = key(&mut random);
        account[0] = SHARD as u8;
        let path = Path::account(&account);
        // Now and then pages are to be moved, and further parts opened.
        let turn = Turn {
            number: round,
            is_moved: &|_| true,
        };
        let turn = (round % 5 == 4).then_some(&turn);
        let opened = old.opened(SHARD, &expanded(&whole, &path), turn).unwrap();
        let to = Stub {
            node: NodeRef::hash(key(&mut random)),
            kind: Some(NodeKind::Branch),
            place: Some(page(&mut random)),
        };
        let (after, touched) = edited(&opened.trie, &path, to);
        whole = edited(&whole, &path, to).0;
        let written = pages.counters.index_parts_written.get();
        let writer = IndexWriter::in_segments(disk.clone(), pages.clone(), cache(0), &old).unwrap();
        for shard in (0..SHARDS).filter(|shard| *shard != SHARD) {
            if !writer.put_unchanged(shard).unwrap() {
                let nothing = PartialTrie::new(shard_prefix(shard));
                let opened = old.opened(shard, &nothing, None).unwrap();
                writer
                    .put_edited(shard, &opened, &opened.trie, None, 0)
                    .unwrap();
            }
        }
        let count = old.pages_of(SHARD);
        let dead = writer
            .put_edited(SHARD, &opened, &after, Some(&touched), count)
            .unwrap();
        pages.segments.sync().unwrap();
        let (new, bytes) = writer.finish().unwrap().seal().unwrap();
        let written = pages.counters.index_parts_written.get() - written;
        match round {
            0 => assert_eq!((written, dead.len()), (256, 0)),
            _ => {
                assert_eq!((written, dead.len()), (1, 1), "round {round}");
                assert!(live.remove(&dead[0]), "a part that was not there");
                assert!(bytes < 20 << 10, "{bytes} bytes of a checkpoint");
            }
        }
        if let (Opened::Parts(parts), true) = (&opened.opened, round > 0) {
            assert_eq!(parts.parts.len() > 1, turn.is_some());
            further += parts.parts.len() - 1;
        }
        let named: HashSet<_> = new.parts_in_segments().into_iter().collect();
        assert!(live.iter().all(|part| named.contains(part)));
        assert_eq!(named.len(), 256);
        live = named;
        assert_eq!(encoded(&new.whole(SHARD).unwrap()), encoded(&whole));
        let lens = live.iter().map(|part| part.len());
        assert_eq!(new.bytes_on_disk(), lens.sum::<u64>());
        if round % 10 == 3 {
            for bytes_max in [0, u64::MAX] {
                let again = read_from_segments(&disk, &pages, bytes_max);
                assert_eq!(encoded(&again.whole(SHARD).unwrap()), encoded(&whole));
                assert_eq!(again.pages(), new.pages());
                let named: HashSet<_> = again.parts_in_segments().into_iter().collect();
                assert_eq!(named, live);
                assert!(again.files().is_whole_due());
                let mut held = HeldParts::default();
                for _ in 0..50 {
                    let mut account = key(&mut random);
                    account[0] = SHARD as u8;
                    let path = Path::account(&account);
                    let IndexLookup::Page { stub, depth } =
                        again.look_up(&path, &mut held).unwrap()
                    else {
                        panic!("no page at {path}");
                    };
                    let got = format!("{stub:?} at {depth}");
                    assert_eq!(got, answer(&whole.lookup(&path)));
                }
            }
        }
        old = new;
    }
    assert!(further >= 12, "{further} parts of other pages");
}

#[test]
fn small_neighbours_become_one_part_when_one_of_them_is_opened() {
    let mut random = Random::new(2);
    // Sixteen children of the root, each of sixteen pages: one part of 11 KiB would be too large.
    let mut whole = full(&mut random, 2);
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(2));
    let pages = empty_pages(&disk);
    let mut old = index_of(&disk, &whole, cache(0));
    let mut counts = Vec::new();
    // Most pages go, one child of the root after another.
    for nibble in (0..16u8).chain([0]) {
        let mut account = key(&mut random);
        (account[0], account[1]) = (SHARD as u8, nibble << 4 | 1);
        let path = Path::account(&account);
        let opened = old.opened(SHARD, &expanded(&whole, &path), None).unwrap();
        let thin_out = |trie: &PartialTrie| {
            let mut trie = trie.clone();
            let parent = trie.find(&path.prefix(3)).unwrap();
            (2..16).for_each(|child| trie.set_child(parent, child, Link::EMPTY));
            let above = [parent, trie.root()];
            trie.set_child(trie.root(), nibble, parent);
            above.iter().for_each(|link| trie.clear_cached_ref(*link));
            trie.hash_nodes(above, &mut Batch::new());
            trie
        };
        let after = thin_out(&opened.trie);
        whole = thin_out(&whole);
        let writer = IndexWriter::in_segments(disk.clone(), pages.clone(), cache(0), &old).unwrap();
        for shard in (0..SHARDS).filter(|shard| *shard != SHARD) {
            if !writer.put_unchanged(shard).unwrap() {
                let nothing = PartialTrie::new(shard_prefix(shard));
                let opened = old.opened(shard, &nothing, None).unwrap();
                writer
                    .put_edited(shard, &opened, &opened.trie, None, 0)
                    .unwrap();
            }
        }
        writer.put_edited(SHARD, &opened, &after, None, 0).unwrap();
        pages.segments.sync().unwrap();
        old = writer.finish().unwrap().seal().unwrap().0;
        assert_eq!(encoded(&old.whole(SHARD).unwrap()), encoded(&whole));
        counts.push(old.parts_in_segments().len());
    }
    assert_eq!((counts[0], counts.last()), (16, Some(&1)), "{counts:?}");
}

#[test]
fn a_page_takes_at_most_47_bytes_of_index() {
    let mut random = Random::new(1);
    let whole = full(&mut random, 3);
    let index = index(&(Arc::new(FaultyDisk::new(1)) as Arc<dyn Disk>), &whole);
    // The other shards are empty.
    let others = SHARDS * PartialTrie::new(shard_prefix(0)).memory_bytes();
    let bytes = index.memory_bytes() - others;
    assert!(bytes / 4096 <= 47, "{bytes} bytes for 4096 pages");
    assert!(whole.memory_bytes() / 4096 > 54);
}
