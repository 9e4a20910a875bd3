//! The stage of an import that reads ahead of execution. It runs on a thread of its own.
//!
//! ```text
//!   prepare ---> ahead ----------------------> execute
//!                  |  known keys, scouts          |
//!                  |<------ sealed blocks --------'
//! ```
//!
//! Blocks are handed on at once, each with a pin for the pages that it needs. While execution works
//! on earlier ones, the pages of their known keys are read, all in flight together, and transactions
//! that can run code are scouted ([`cambium_evm::Scouts`]) on the newest sealed state.
//!
//! How far ahead depends on memory: no reads begin while pins have as much as they may. Scouts that are
//! under way go on until pins have twice that, and are ended then.

use crate::{Chain, ChainError, PreparedBlock};
use alloy_primitives::{Address, B256, U256, keccak256};
use cambium_evm::{AheadState, BlockInput, KnownKeys, Rules, Scouts, account_info, may_run_code};
use cambium_keccak::keccak256_each;
use cambium_primitives::BlockId;
use cambium_state::{PagePin, ReadAhead, StateError, View};
use revm::{DatabaseRef, bytecode::Bytecode, state::AccountInfo};
use std::{collections::VecDeque, rc::Rc, sync::Arc, task::Poll};

/// Most scouts at once.
const SCOUTS_MAX: usize = 256;
/// Consecutive scouts that found everything in memory, after which most are left out.
const WARM_SCOUTS: u32 = 256;
/// Multiple of the pin limit at which running scouts are ended; up to it they go on.
const GOING_ON: u64 = 2;
/// Assumed size of a page in flight, in bytes.
const PAGE_BYTES: u64 = 8 << 10;
/// While everything is in memory, one transaction in this many is scouted.
const WARM_SAMPLE: usize = 16;

/// A block that reads are made ahead for.
pub(crate) struct AheadBlock {
    prepared: Arc<PreparedBlock>,
    rules: Rules,
}

/// The newest sealed state, read ahead.
struct NewestState {
    reader: ReadAhead,
    view: View,
}

impl AheadState for NewestState {
    type Block = AheadBlock;
    type Error = StateError;

    fn input<'a>(block: &'a AheadBlock) -> BlockInput<'a> {
        BlockInput::of_block(block.rules, &block.prepared.block, block.senders())
    }

    fn account(
        &mut self,
        block: &AheadBlock,
        address: Address,
        ticket: u64,
    ) -> Result<Poll<Option<AccountInfo>>, StateError> {
        let path = keccak256(address);
        let account = self
            .reader
            .account(&self.view, &block.prepared.pin, &path, ticket)?;
        Ok(account.map(|account| account.map(account_info)))
    }

    fn slot(
        &mut self,
        block: &AheadBlock,
        address: Address,
        slot: U256,
        ticket: u64,
    ) -> Result<Poll<U256>, StateError> {
        let slot = (keccak256(address), keccak256(slot.to_be_bytes::<32>()));
        self.reader
            .slot(&self.view, &block.prepared.pin, &slot, ticket)
    }

    fn code(&mut self, _: &AheadBlock, hash: B256) -> Result<Bytecode, StateError> {
        self.view.code_by_hash_ref(hash)
    }

    fn block_hash(&mut self, _: &AheadBlock, number: u64) -> Result<B256, StateError> {
        self.view.block_hash_ref(number)
    }

    fn load_account(&mut self, block: &AheadBlock, address: Address) -> Result<(), StateError> {
        let path = keccak256(address);
        self.reader
            .load_account(&self.view, &block.prepared.pin, &path)
    }

    fn load_slot(
        &mut self,
        block: &AheadBlock,
        address: Address,
        slot: U256,
    ) -> Result<(), StateError> {
        let slot = (keccak256(address), keccak256(slot.to_be_bytes::<32>()));
        self.reader
            .load_slot(&self.view, &block.prepared.pin, &slot)
    }
}

impl NewestState {
    /// Begins to read the pages of keys that a block is about to change.
    fn load(&mut self, pin: &Arc<PagePin>, keys: &KnownKeys) -> Result<(), StateError> {
        let (accounts, slots) = paths_of(keys);
        for path in &accounts {
            self.reader.load_account(&self.view, pin, path)?;
        }
        for slot in &slots {
            self.reader.load_slot(&self.view, pin, slot)?;
        }
        Ok(())
    }
}

impl AheadBlock {
    fn senders(&self) -> &[Address] {
        match &self.prepared.senders {
            Some(Ok(senders)) => senders,
            _ => &[],
        }
    }
}

/// A block whose reads ahead are not all made yet.
struct Waiting {
    block: Rc<AheadBlock>,
    id: BlockId,
    /// Whether the keys are known that no transaction names.
    begun: bool,
    /// Transactions before this one have given their known keys; or accounts of the block's access
    /// list, if it came with one.
    known: usize,
    /// Transactions before this one have been scouted, if they can run code.
    scouted: usize,
}

/// Next reads of a block.
enum Next {
    Keys(KnownKeys),
    /// The keys that this transaction finds.
    Scout(usize),
}

impl Waiting {
    fn new(chain: &Chain, prepared: &Arc<PreparedBlock>) -> Self {
        let header = &prepared.block.header;
        // A guess of the rules will do.
        let post_merge = header.difficulty.is_zero();
        let spec = chain.spec();
        let rules = spec.rules_at(header.number, header.timestamp, post_merge);
        Self {
            id: prepared.id,
            block: Rc::new(AheadBlock {
                prepared: prepared.clone(),
                rules,
            }),
            begun: false,
            known: 0,
            scouted: 0,
        }
    }

    /// Lets known keys be looked up again: a merge has written some of their pages anew.
    fn forget_keys(&mut self) {
        (self.begun, self.known) = (false, 0);
    }

    /// The next reads of the block; `None` if there are none, or none before a scout is idle.
    fn next(&mut self, is_scout_idle: bool) -> Option<Next> {
        let block = &self.block;
        if let Some(Ok(list)) = &block.prepared.access_list {
            let left = &list.accounts()[self.known..];
            let accounts = &left[..left.len().min(TOGETHER)];
            self.known += accounts.len();
            return (!accounts.is_empty()).then(|| Next::Keys(KnownKeys::of_list(accounts)));
        }
        let transactions = &block.prepared.block.body.transactions;
        let senders = block.senders();
        let end = senders.len().min(self.known + TOGETHER);
        if !self.begun || self.known < end {
            let mut keys = match self.begun {
                true => KnownKeys::default(),
                false => KnownKeys::of_block(&NewestState::input(block)),
            };
            for at in self.known..end {
                keys.add_transaction(&transactions[at], senders[at]);
            }
            (self.begun, self.known) = (true, end);
            return Some(Next::Keys(keys));
        }
        if !is_scout_idle {
            return None;
        }
        let mut left = self.scouted..senders.len();
        let scout = left.find(|at| may_run_code(&transactions[*at]));
        self.scouted = left.start;
        scout.map(Next::Scout)
    }
}

/// Transactions whose known keys are looked up together, so that hashing fills its lanes.
const TOGETHER: usize = 16;

/// Reads ahead for the blocks that wait for execution.
pub(crate) struct ReadingAhead<'a> {
    chain: &'a Chain,
    /// Most reads in flight.
    depth: usize,
    scouts: Scouts<NewestState>,
    waiting: VecDeque<Waiting>,
    /// Scouts whose reads have ended.
    ended: VecDeque<u64>,
    /// Scouts that found everything in memory since the last one that did not.
    warm_scouts: u32,
}

impl<'a> ReadingAhead<'a> {
    /// Reads ahead on the state at the head, until blocks are sealed, with up to `depth` reads in
    /// flight.
    ///
    /// # Errors
    ///
    /// If the head can't be viewed.
    pub(crate) fn new(chain: &'a Chain, depth: usize) -> Result<Self, ChainError> {
        let state = NewestState {
            reader: chain.db().read_ahead(depth),
            view: chain.db().view()?,
        };
        let scouts = Scouts::new(state, depth.min(SCOUTS_MAX));
        Ok(Self {
            chain,
            depth,
            scouts,
            waiting: VecDeque::new(),
            ended: VecDeque::new(),
            warm_scouts: 0,
        })
    }

    /// Adds the next block.
    pub(crate) fn add(&mut self, prepared: &Arc<PreparedBlock>) {
        let waiting = Waiting::new(self.chain, prepared);
        self.waiting.push_back(waiting);
    }

    /// A block has been executed and sealed: it needs no reads any more, nor do those before it, and
    /// its state is the newest.
    pub(crate) fn sealed(&mut self, id: BlockId) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.id == id) {
            self.waiting.drain(..=at);
        }
        // A block that was dropped meanwhile leaves an older state, which is as good a guess.
        if let Ok(view) = self.chain.db().view_of(id) {
            let is_merged = self.scouts.with_state(|state| {
                let is_merged = !view.has_snapshot_of(&state.view);
                state.view = view;
                is_merged
            });
            if is_merged {
                self.waiting.iter_mut().for_each(Waiting::forget_keys);
            }
        }
    }

    /// Begins reads while there is room for them, and takes what has arrived. If there is nothing to
    /// begin or take, waits for a read in flight. Returns false if there is none either.
    ///
    /// Reads are begun and taken between any two scouts: execution may be waiting for one of them.
    pub(crate) fn work_or_wait(&mut self) -> bool {
        let mut worked = false;
        for _ in 0..self.depth {
            self.take_arrived(false);
            if let Some(ticket) = self.ended.pop_front() {
                let (pinned, pinned_max) = self.chain.db().pinned_pages();
                match pinned < GOING_ON * pinned_max {
                    true => self.scouts.resume(ticket),
                    false => self.scouts.abandon(ticket),
                }
            } else if !self.has_room() || !self.begin_next() {
                break;
            }
            worked = true;
        }
        if !worked && self.in_flight() > 0 {
            worked = true;
            self.take_arrived(true);
        }
        worked
    }

    /// Ends the scouts, and drops the blocks.
    pub(crate) fn stop(mut self) {
        self.waiting.clear();
        self.scouts.abandon_all();
    }

    /// Whether another page may be read: at the full depth the device gains nothing from it, and
    /// pins have a limit.
    fn has_room(&mut self) -> bool {
        let in_flight = self.in_flight();
        let (pinned, pinned_max) = self.chain.db().pinned_pages();
        let expected = in_flight as u64 * PAGE_BYTES;
        in_flight < self.depth && (pinned + expected < pinned_max || pinned == 0)
    }

    fn in_flight(&mut self) -> usize {
        self.scouts.with_state(|state| state.reader.in_flight())
    }

    fn take_arrived(&mut self, wait: bool) {
        let ended = &mut self.ended;
        self.scouts
            .with_state(|state| state.reader.poll(wait, ended));
    }

    /// Begins the next reads of the first block that has some left. Returns false if none has.
    fn begin_next(&mut self) -> bool {
        let is_scout_idle = self.scouts.idle() > 0;
        let mut waiting = self.waiting.iter_mut();
        let next = waiting.find_map(|waiting| Some((waiting.next(is_scout_idle)?, &waiting.block)));
        match next {
            None => return false,
            Some((Next::Keys(keys), block)) => {
                // An error recurs when execution reads the key.
                let _ = self
                    .scouts
                    .with_state(|state| state.load(&block.prepared.pin, &keys));
            }
            Some((Next::Scout(at), _))
                if self.warm_scouts > WARM_SCOUTS && !at.is_multiple_of(WARM_SAMPLE) => {}
            Some((Next::Scout(at), block)) => match self.scouts.start(block.clone(), at) {
                true => self.warm_scouts = self.warm_scouts.saturating_add(1),
                false => self.warm_scouts = 0,
            },
        }
        true
    }
}

/// Known keys of a block below which reading them one by one is as good.
const PREFETCH_MIN: usize = 16;

impl Chain {
    /// Reads the pages of a block's known keys into its pin, all in flight together, and waits for
    /// them: for a block that comes alone, on the head, and is executed at once.
    pub(crate) fn prefetch_known_keys(&self, prepared: &Arc<PreparedBlock>) {
        let Ok(view) = self.db().view() else {
            return;
        };
        if view.block().hash != prepared.block.header.parent_hash {
            return;
        }
        let mut waiting = Waiting::new(self, prepared);
        let mut keys = KnownKeys::default();
        let keys_max = (self.db().pinned_pages().1 / PAGE_BYTES) as usize;
        while keys.accounts.len() + keys.slots.len() < keys_max
            && let Some(Next::Keys(next)) = waiting.next(false)
        {
            keys.append(next);
        }
        keys.accounts.truncate(keys_max);
        keys.slots.truncate(keys_max);
        if keys.accounts.len() + keys.slots.len() >= PREFETCH_MIN {
            let (accounts, slots) = paths_of(&keys);
            // An error recurs when execution reads the key.
            let _ = view
                .pinned(prepared.pin.clone())
                .prefetch(&accounts, &slots);
        }
    }
}

/// The paths of keys: hashes of addresses, and of addresses and slots.
fn paths_of(keys: &KnownKeys) -> (Vec<B256>, Vec<(B256, B256)>) {
    let owners = keccak256_each(keys.slots.iter().map(|(owner, _)| owner));
    let slots = keccak256_each(keys.slots.iter().map(|(_, slot)| slot.to_be_bytes::<32>()));
    let slots = owners.into_iter().zip(slots).collect();
    (keccak256_each(&keys.accounts), slots)
}
