//! Promises about a repair's report of lost blocks, each of which was once broken.

use alloy_primitives::{B256, keccak256};
use cambium_primitives::{BlockId, Changes};
use cambium_state::{BlockMeta, Db, Disk, FaultyDisk, View, repair};
use cambium_testkit::plain::{make, path, put, tiny_options};
use std::{ops::RangeInclusive, sync::Arc};

const ACCOUNTS: u64 = 30;

fn database() -> (Db, FaultyDisk) {
    let disk = FaultyDisk::new(7);
    let slots_of = |index| if index == 0 { 1000 } else { index % 3 };
    (
        make(Arc::new(disk.clone()), tiny_options(), ACCOUNTS, slots_of),
        disk,
    )
}

/// A block on the state of `parent` that changes one account, and takes some bytes more in the log.
fn commit(parent: View, name: B256, nonce: u64, body: usize) {
    let above = parent.block();
    let changes = Changes::new(vec![put(path(nonce % ACCOUNTS), nonce)]);
    let staged = parent.session().finish(changes, vec![]).unwrap();
    let meta = BlockMeta {
        id: BlockId::new(above.number + 1, name),
        parent: above.hash,
        state_root: staged.root(),
        body: vec![1; body].into(),
    };
    staged.seal(meta).unwrap().commit().unwrap();
}

fn close(db: Db, disk: &FaultyDisk) -> FaultyDisk {
    db.close().unwrap();
    disk.duplicate()
}

/// The newest record makes a block the head whose own record, before all that is replayed, is lost.
#[test]
fn a_head_whose_record_is_lost_is_missed_by_a_repair() {
    lost_before_the_replay(None, |db, side| _ = db.set_head(side).unwrap());
}

/// The newest record is that of a block, and its parent's, before all that is replayed, is lost.
#[test]
fn a_block_whose_parent_is_lost_is_missed_by_a_repair() {
    lost_before_the_replay(Some(6..=6), |db, side| {
        commit(db.view_of(side).unwrap(), keccak256(side.hash), 77, 0);
    });
}

/// A branch is left, which is in a checkpoint, and `go_back` makes it the head's: but the record of
/// its newest block is damaged then.
fn lost_before_the_replay(
    missing: Option<RangeInclusive<u64>>,
    go_back: impl FnOnce(&Db, BlockId),
) {
    let (db, disk) = database();
    let mut side = BlockId::default();
    for number in 1..=6 {
        commit(db.view().unwrap(), keccak256([number as u8]), number, 2000);
        side = db.head();
    }
    let place = disk.contents("log/00000001.log").unwrap();
    let place = place.windows(32).position(|bytes| bytes == side.hash);
    db.unwind(3).unwrap();
    for number in 4..=8 {
        let name = keccak256([number as u8; 7]);
        commit(db.view().unwrap(), name, 100 + number, 0);
    }
    db.flush(0).unwrap();
    let main = db.head();
    go_back(&db, side);
    let disk = close(db, &disk);
    let at = place.expect("the record is in the first file") as u64;
    disk.flip_bit("log/00000001.log", at, 3);
    let arc: Arc<dyn Disk> = Arc::new(disk.clone());
    let trial = repair(&arc, tiny_options(), true, &mut |_| {}).unwrap();
    let report = repair(&arc, tiny_options(), false, &mut |_| {}).unwrap();
    assert_eq!(report.head, main, "{report:?}");
    assert!(report.lost_blocks && trial.lost_blocks, "{report:?}");
    assert_eq!(report.missing, missing, "{report:?}");
}

/// "Whether blocks above the head may have been lost" is reported for every unreadable device block
/// of the log: one may have the last records before a checkpoint, and the first after it.
#[test]
fn blocks_lost_beside_damage_before_a_checkpoint_are_told() {
    let mut lost = 0;
    for merged in (1..=24).step_by(3) {
        let (db, disk) = database();
        let commit = |number: u64| {
            let name = keccak256(number.to_le_bytes());
            commit(db.view().unwrap(), name, number, 40 * number as usize);
        };
        (1..=merged).for_each(commit);
        db.flush(0).unwrap();
        (merged + 1..=merged + 2).for_each(commit);
        let head = db.head();
        let disk = close(db, &disk);
        for file in disk.files() {
            if !file.starts_with("log/") {
                continue;
            }
            let len = disk.contents(&file).unwrap().len() as u64;
            for offset in (0..len).step_by(4096) {
                let at = format!("{merged} merged, {file} unreadable at {offset}");
                let damaged = disk.duplicate();
                damaged.spoil(&file, offset, 1);
                let damaged: Arc<dyn Disk> = Arc::new(damaged);
                let report = repair(&damaged, tiny_options(), false, &mut |_| {}).unwrap();
                let is_lost = report.head != head;
                assert!(!is_lost || report.lost_blocks, "{at}: {report:?}");
                lost += usize::from(is_lost);
                // Blocks before the head are unchanged.
                let (db, _) = Db::open(damaged, tiny_options()).unwrap();
                assert_eq!(db.head(), report.head, "{at}");
                let again = db.check(&mut |_| {}).unwrap().damage;
                assert!(
                    again.is_empty() || !report.lost_history.is_empty(),
                    "{at}: {again:?}"
                );
            }
        }
    }
    assert!(lost > 0);
}
