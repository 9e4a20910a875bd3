//! Accounts of a state, and a shard with all of them.

use alloy_consensus::Header;
use alloy_primitives::{B256, U256, keccak256};
use cambium_cluster::{Shard, ShardLimits, ShardLoader, ShardRange, top_nodes};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Path};
use cambium_testkit::Random;
use cambium_trie::{Batch, NoResolve, PartialTrie, commit};
use std::error::Error;

/// Keys of a batch of gets.
pub(super) const BATCH_KEYS: usize = 100;

pub(crate) fn key_of(index: usize) -> B256 {
    keccak256((index as u64).to_be_bytes())
}

pub(crate) fn account_of(index: usize, salt: u64) -> Account {
    Account {
        nonce: index as u64 % 1_000,
        balance: U256::from(1_000_000_000_000_000_000 + index as u64 * 1_000_003 + salt),
        ..Account::default()
    }
}

pub(crate) fn put(path: B256, account: Account) -> AccountDiff {
    AccountDiff {
        path,
        account: AccountUpdate::Put(account),
        wipe: false,
        slots: Vec::new(),
    }
}

/// A number below `end`.
pub(crate) fn uniform(random: &mut Random, end: usize) -> usize {
    random.below(end as u64) as usize
}

/// A number below `end` of a Zipf distribution with exponent 1: its logarithm is uniform.
pub(super) fn zipf(random: &mut Random, end: usize) -> usize {
    let part = random.next() as f64 / u64::MAX as f64;
    let rank = (end as f64).powf(part) as usize;
    rank.clamp(1, end) - 1
}

/// A hashed trie of these accounts.
pub(super) fn trie_of(
    mut changes: Vec<AccountDiff>,
    base: Path,
) -> Result<PartialTrie, Box<dyn Error>> {
    changes.sort_unstable_by_key(|change| change.path);
    let mut trie = PartialTrie::new(base);
    trie.apply(&changes, &mut NoResolve)?;
    commit(&mut [&mut trie], &mut Batch::new());
    trie.shrink_to_fit();
    Ok(trie)
}

/// One shard of the whole state.
pub(super) fn shard_of(accounts: usize) -> Result<(Shard, BlockId), Box<dyn Error>> {
    let changes = (0..accounts).map(|index| put(key_of(index), account_of(index, 0)));
    let mut changes: Vec<_> = changes.collect();
    changes.sort_unstable_by_key(|change| change.path);
    let mut loader = ShardLoader::new(ShardRange::new(0, 1)?);
    loader.put(&changes)?;
    let trie = trie_of(changes, Path::EMPTY)?;
    let header = Header {
        state_root: trie.state_root().unwrap_or_default(),
        number: 1,
        ..Header::default()
    };
    let top = top_nodes(&trie, 1);
    drop(trie);
    let shard = loader.finish(&header, &top, ShardLimits::default())?;
    Ok((shard, BlockId::new(header.number, header.hash_slow())))
}
