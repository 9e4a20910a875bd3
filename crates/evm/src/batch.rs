//! Execution of several blocks at once, by their access lists.
//!
//! An access list contains every value that its block changes. So the pre-state of a block is known
//! before the blocks before it have run: the pre-state of the first block, with the last values of
//! all lists in between on top. Each block is executed sequentially on its pre-state, and blocks
//! run at the same time.
//!
//! A block's outcome is correct if the lists of all blocks before it are correct. The caller must
//! therefore verify outcomes in order, each against its block's list, before it trusts the next.

use crate::{
    BlockInput, Executor, Hooks, Outcome, Sequential, StateRead,
    cache::{BlockCache, Keys},
    listed::{Given, ListStateError},
};
use alloy_primitives::{Address, B256, U256, map::AddressMap};
use cambium_primitives::AccessList;
use revm::{DatabaseRef, bytecode::Bytecode, primitives::hardfork::SpecId, state::AccountInfo};
use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// A block of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchBlock<'a> {
    /// The block, with its access list.
    pub input: BlockInput<'a>,
    /// The block's hash, for BLOCKHASH in the blocks after it.
    pub hash: B256,
}

/// Executes consecutive blocks at the same time on up to `threads` threads. `db` is the pre-state
/// of the first block.
///
/// Calls `take` with each block's index, outcome and execution time, in order, while later blocks
/// run. If `take` returns false, the rest of the batch is dropped. An outcome includes the block's
/// access list, and equals that of sequential execution if the lists of all blocks before it are
/// correct. It is `None` if the block fails or its pre-state can't be derived from the lists: the
/// caller then executes the block by itself.
pub fn execute_batch<DB: StateRead + Sync>(
    blocks: &[BatchBlock<'_>],
    db: &DB,
    threads: NonZeroUsize,
    mut take: impl FnMut(usize, Option<Outcome>, Duration) -> bool,
) {
    let cache = BlockCache::new(db);
    let lists = Lists::new(blocks);
    let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, done) = mpsc::channel();
    let work = |sender: mpsc::Sender<_>| {
        while !stopped.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= blocks.len() {
                return;
            }
            let start = Instant::now();
            let outcome = lists.execute(index, &cache);
            if sender.send((index, (outcome, start.elapsed()))).is_err() {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.get().min(blocks.len()) {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        let (mut waiting, mut expected) = (BTreeMap::new(), 0);
        for (index, outcome) in done {
            waiting.insert(index, outcome);
            while let Some((outcome, elapsed)) = waiting.remove(&expected) {
                if !take(expected, outcome, elapsed) {
                    stopped.store(true, Ordering::Relaxed);
                    return;
                }
                expected += 1;
            }
        }
    });
}

/// The access lists of a batch.
struct Lists<'a> {
    blocks: &'a [BatchBlock<'a>],
    /// The lists of the first blocks, up to a block without a list, or with an impossible one.
    lists: Vec<Given<'a>>,
    /// Positions of the blocks that change an account, in order.
    changing: AddressMap<Vec<usize>>,
}

impl<'a> Lists<'a> {
    fn new(blocks: &'a [BatchBlock<'a>]) -> Self {
        let mut lists = Vec::with_capacity(blocks.len());
        let mut changing = AddressMap::<Vec<usize>>::default();
        let listed = blocks.iter().map_while(|block| {
            let list = block.input.access_list?;
            let is_told = block.input.rules.is(SpecId::CANCUN);
            Given::new(list).filter(|_| is_told)
        });
        for given in listed {
            let accounts = given.list().accounts().iter();
            for account in accounts.filter(|account| AccessList::is_changed(account)) {
                let places = changing.entry(account.address).or_default();
                places.push(lists.len());
            }
            lists.push(given);
        }
        Self {
            blocks,
            lists,
            changing,
        }
    }

    fn execute<DB: StateRead + Sync>(
        &self,
        index: usize,
        cache: &BlockCache<'_, DB>,
    ) -> Option<Outcome> {
        let given = self.lists.get(index)?;
        cache.read(&Keys::of(given.list())).ok()?;
        let state = AfterLists {
            lists: self,
            cache,
            index,
        };
        let mut input = self.blocks[index].input;
        input.rules.block_access_list = true;
        let outcome = Sequential.execute(&input, state, Hooks::default()).ok()?;
        // Touching an empty account deletes it, which no list says.
        (!cache.has_empty_account()).then_some(outcome)
    }

    /// The lists of earlier blocks that change an account, newest first.
    fn before(
        &self,
        index: usize,
        address: &Address,
    ) -> impl DoubleEndedIterator<Item = &Given<'a>> {
        let places = self.changing.get(address).map_or(&[][..], Vec::as_slice);
        let end = places.partition_point(|place| *place < index);
        places[..end].iter().rev().map(|place| &self.lists[*place])
    }
}

/// Above every index of a block: selects the values after the block.
const AT_THE_END: u64 = u64::MAX;

/// The pre-state of a block of a batch.
struct AfterLists<'a, DB> {
    lists: &'a Lists<'a>,
    cache: &'a BlockCache<'a, DB>,
    /// Position of the block.
    index: usize,
}

impl<DB: StateRead + Sync> DatabaseRef for AfterLists<'_, DB> {
    type Error = ListStateError<DB::Error>;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, Self::Error> {
        let account = self.cache.account(address).map_err(ListStateError::State)?;
        let oldest_first = self.lists.before(self.index, &address).rev();
        Ok(oldest_first.fold(account, |account, given| {
            match given.index().account(&address) {
                Some(place) => given.account(place, AT_THE_END, account),
                None => account,
            }
        }))
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, Self::Error> {
        let lists = self.lists.lists[..self.index].iter();
        match lists.rev().find_map(|given| given.code(&hash)) {
            Some(code) => Ok(code.clone()),
            None => self.cache.code(hash).map_err(ListStateError::State),
        }
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, Self::Error> {
        let mut lists = self.lists.before(self.index, &address);
        let listed = lists.find_map(|given| {
            let place = given.index().slot(&address, slot)?;
            given.slot(place, AT_THE_END)
        });
        match listed {
            Some(value) => Ok(value),
            None => {
                let value = self.cache.slot(address, slot);
                value.map_err(ListStateError::State)
            }
        }
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, Self::Error> {
        let mut before = self.lists.blocks[..self.index].iter();
        if let Some(block) = before.find(|block| block.input.header.number == number) {
            return Ok(block.hash);
        }
        let hash = self.cache.db().block_hash_ref(number);
        hash.map_err(ListStateError::State)
    }
}

impl<DB: StateRead + Sync> StateRead for AfterLists<'_, DB> {
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error> {
        let mut lists = self.lists.before(self.index, &address);
        if lists.any(|given| given.has_slot_before(&address, AT_THE_END)) {
            return Err(ListStateError::Untold);
        }
        let has_storage = self.cache.db().has_storage(address);
        has_storage.map_err(ListStateError::State)
    }
}
