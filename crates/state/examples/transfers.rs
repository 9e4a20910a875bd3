//! Measures batches of 25,000 transfers between random accounts, a quarter of them to new accounts, as `./bench state`
//! makes them: bytes written, device reads, and sizes of pages and index, while they change.
//!
//! `cargo run --release -p cambium-state --example transfers -- DIRECTORY [ACCOUNTS] [MEMORY_MIB] [BATCHES] [ROUNDS]
//! [INDEX_MIB]` loads a state into the directory unless it has one, and goes on with it: `ROUNDS` lines of figures
//! for `BATCHES` batches each. `INDEX_MIB` is the memory limit of the index.

use alloy_primitives::{B256, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, Disk, Loader, Options, StateError, StdDisk};
use std::{collections::BTreeMap, sync::Arc, time::Instant};

const TRANSFERS: u64 = 25_000;

/// The path of the account with this number.
fn path(number: u64) -> B256 {
    keccak256(number.to_be_bytes())
}

/// A number below `below` that depends on the batch, on the transfer, and on which of its accounts is meant.
fn random(batch: u64, transfer: u64, which: u64, below: u64) -> u64 {
    let mixed =
        [batch, transfer, which]
            .into_iter()
            .fold(0x9e37_79b9_7f4a_7c15_u64, |state, word| {
                let mixed = (state ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb)
            });
    (mixed ^ mixed >> 29) % below
}

fn meta(number: u64, state_root: B256) -> BlockMeta {
    let hash = |number: u64| B256::left_padding_from(&(number + 1).to_be_bytes());
    BlockMeta {
        id: BlockId::new(number, hash(number)),
        parent: number.checked_sub(1).map_or(B256::ZERO, hash),
        state_root,
        body: Default::default(),
    }
}

/// The numbers of a batch's accounts, with what it adds to their balance and nonce.
fn batch(number: u64, accounts: u64) -> BTreeMap<B256, (i64, u64)> {
    let mut changed = BTreeMap::new();
    for transfer in 0..TRANSFERS {
        let from = random(number, transfer, 0, accounts);
        let to = match transfer % 4 {
            3 => (1 << 40) + number * TRANSFERS + transfer,
            _ => random(number, transfer, 1, accounts),
        };
        let sender = changed.entry(path(from)).or_insert((0, 0));
        *sender = (sender.0 - 1_000_000_007, sender.1 + 1);
        changed.entry(path(to)).or_insert((0, 0)).0 += 1_000_000_007;
    }
    changed
}

/// Transfers one batch, and returns the number of accounts that it changed.
fn transfer(db: &Db, accounts: u64) -> Result<u64, StateError> {
    let view = db.view()?;
    let number = view.block().number + 1;
    let changed = batch(number, accounts);
    let keys: Vec<_> = changed.keys().copied().collect();
    let session = view.session();
    let before = session.accounts(&keys)?;
    let diffs = changed.into_iter().zip(before);
    let diffs = diffs.map(|((path, (amount, nonce)), before)| {
        let before = before.unwrap_or_default();
        let sum = U256::from(amount.unsigned_abs());
        let account = Account {
            nonce: before.nonce + nonce,
            balance: match amount < 0 {
                true => before.balance.saturating_sub(sum),
                false => before.balance + sum,
            },
            ..before
        };
        AccountDiff {
            path,
            account: AccountUpdate::Put(account),
            wipe: false,
            slots: vec![],
        }
    });
    let staged = session.finish(Changes::new(diffs.collect()), vec![])?;
    let root = staged.root();
    staged.seal(meta(number, root))?.commit()?;
    Ok(keys.len() as u64)
}

fn load(disk: Arc<dyn Disk>, options: Options, accounts: u64) -> Result<(), StateError> {
    let mut loader = Loader::new(disk, options)?;
    for number in 0..accounts {
        let account = Account {
            balance: U256::from(1_000_000_000_000_000_000_u64 + number * 251),
            ..Account::default()
        };
        loader.account(path(number), &account, [])?;
    }
    let loaded = loader.finish(&mut |_| {})?;
    let root = loaded.root();
    loaded.create(meta(0, root), vec![]).map(drop)
}

fn main() -> Result<(), StateError> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("the directory of the database");
    let mut args = args.map(|arg| arg.parse::<u64>());
    let mut arg = |default| args.next().and_then(Result::ok).unwrap_or(default);
    let (accounts, memory_mib) = (arg(1 << 20), arg(1024));
    let (batches, rounds, index_mib) = (arg(10), arg(3), arg(0));
    let options = Options {
        memory_bytes: memory_mib << 20,
        index_bytes_max: (index_mib > 0).then_some(index_mib << 20),
        unfinalized_blocks: 1,
        keep_blocks: Some(16),
        ..Options::default()
    };
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(&dir));
    if !Db::exists(&*disk)? {
        let start = Instant::now();
        load(disk.clone(), options, accounts)?;
        println!("loaded in {:.1} s", start.elapsed().as_secs_f64());
    }
    let (db, _) = Db::open(disk.clone(), options)?;
    println!(
        "{accounts} accounts, {memory_mib} MiB; per changed account: bytes of pages, of them moved, of checkpoints, of \
         the log; device reads an access; transfers/s"
    );
    for round in 0..=rounds {
        let (before, reads, start) = (db.counters(), disk.stats().reads, Instant::now());
        let mut changed = 0;
        let wanted = if round == 0 { 0 } else { batches };
        for _ in 0..wanted {
            changed += transfer(&db, accounts)?;
        }
        let (after, seconds) = (db.counters(), start.elapsed().as_secs_f64());
        let stats = db.stats()?;
        let each = |bytes: fn(&cambium_state::CounterValues) -> u64| {
            (bytes(&after) - bytes(&before)) / changed.max(1)
        };
        println!(
            "after {:5} batches: pages {:5} moved {:4} checkpoints {:4} log {:4}; reads {:.3}; {:6.0} tx/s; {} pages of \
             {:.0} bytes, index {:.1} MB, {:.2} an account, on disk {:.1} MB; {:.1} bytes of segments an account, {} \
             merges, {} split, {} joined",
            db.view()?.block().number,
            each(|counted| counted.page_bytes_written),
            each(|counted| counted.page_bytes_moved),
            each(|counted| counted.checkpoint_bytes_written),
            each(|counted| counted.log_bytes_written),
            (disk.stats().reads - reads) as f64 / changed.max(1) as f64,
            (wanted * TRANSFERS) as f64 / seconds,
            stats.pages,
            stats.segment_live_bytes as f64 / stats.pages as f64,
            stats.index_bytes as f64 / 1e6,
            stats.index_bytes as f64 / accounts as f64,
            stats.index_bytes_on_disk as f64 / 1e6,
            stats.segment_bytes as f64 / accounts as f64,
            after.merges - before.merges,
            after.pages_split - before.pages_split,
            after.pages_joined - before.pages_joined,
        );
    }
    println!("root {}", db.view()?.state_root());
    Ok(())
}
