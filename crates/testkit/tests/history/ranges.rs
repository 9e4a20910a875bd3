//! Reads and waits of a proof of a range.

use super::world::*;
use alloy_primitives::{B256, U256};
use cambium_history::{History, HistoryOptions, WholeNodes};
use cambium_primitives::{AccountDiff, AccountUpdate};
use cambium_state::{Disk, FaultyDisk};
use cambium_testkit::{
    Random,
    plain::{self, account, path, random_puts},
    say,
};
use cambium_trie::{LeafRange, PartialTrie};
use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc};

const MANY: u64 = 6_000;
const BLOCKS: u64 = 60;

/// Changes of slots of the first account.
fn slots(random: &mut Random, block: u64) -> AccountDiff {
    let slots = (0..60).map(|_| (path(random.below(2_500)), U256::from(block + 2)));
    let slots: BTreeMap<_, _> = slots.collect();
    AccountDiff {
        path: path(0),
        account: AccountUpdate::Put(account(block + 1)),
        wipe: false,
        slots: slots.into_iter().collect(),
    }
}

#[test]
fn a_proof_of_a_range_waits_for_levels_and_not_for_nodes() {
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(1));
    let no_cache = HistoryOptions {
        memory_bytes: 256 << 10,
        trie_bytes: 1 << 20,
        cache_bytes: 0,
        ..HistoryOptions::default()
    };
    let slots_of = |at| if at == 0 { 2_000 } else { at % 2 };
    let db = plain::make(disk.clone(), options(), MANY, slots_of);
    let history = History::create(disk, &db, 0, Some(WholeNodes::default()), no_cache).unwrap();
    let mut random = Random::new(1);
    for block in 0..BLOCKS {
        let mut changes = random_puts(&mut random, 200, MANY, block + 1);
        changes.retain(|change| change.path != path(0));
        changes.push(slots(&mut random, block));
        changes.sort_by_key(|change| change.path);
        plain::commit(&db, changes, vec![]);
        if block % 20 == 19 {
            db.flush(2).unwrap();
        }
    }
    history.catch_up(&db, &mut |_| true).unwrap();
    history.flush().unwrap();
    let (first, last) = (B256::repeat_byte(0x31), B256::repeat_byte(0xff));
    let ranges = [
        LeafRange::accounts(first, last),
        LeafRange::slots(path(0), B256::ZERO, last),
    ];
    for number in [0, BLOCKS / 2, BLOCKS - 3] {
        let view = history.state_at(&db, number).unwrap();
        let root = db.block(number).unwrap().unwrap().state_root;
        for (range, limit) in ranges
            .iter()
            .flat_map(|range| [(range, 30), (range, 1_000)])
        {
            let before = history.stats();
            let part = view.extract_range(range, NonZeroUsize::new(limit).unwrap());
            let part = part.unwrap();
            let (reads, waits) = {
                let after = history.stats();
                (after.reads - before.reads, after.waits - before.waits)
            };
            let nodes = part.trie.witness_nodes();
            let (proof, unused) = PartialTrie::from_witness(root, &nodes).unwrap();
            assert_eq!(unused, 0);
            let leaves = proof.leaves(&part.range).unwrap();
            assert_eq!(leaves.len(), limit);
            say(&format!(
                "{limit} leaves before block {}: {} nodes, {reads} reads, {waits} waits",
                number + 1,
                nodes.len()
            ));
            assert!(waits <= 40, "{waits} waits");
            assert!(reads <= 3 * nodes.len() as u64 + 60, "{reads} reads");
            if limit == 1_000 && number == 0 {
                assert!(reads > 3 * waits, "{reads} reads, {waits} waits");
            }
        }
    }
    assert!(history.stats().files > 1);
}
