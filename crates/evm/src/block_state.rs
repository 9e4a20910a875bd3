//! A block's writes for callers that run revm by themselves, and conversions of revm's own records of changes.

use crate::{
    StateRead,
    account::account,
    overlay::{EntryChange, Overlay, OverlayMode, is_gone, with_paths},
};
use alloy_primitives::{Address, B256, Bytes, U256, map::AddressMap};
use cambium_primitives::{AccountUpdate, Changes};
use revm::{
    Database, DatabaseCommit,
    bytecode::Bytecode,
    database::{BundleAccount, BundleState},
    state::{Account as TouchedAccount, AccountInfo, EvmState},
};

/// Changes of a block in the form that a session of the database takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockChanges {
    /// The difference to the parent's state, by hashed address and hashed slot.
    pub changes: Changes,
    /// Codes of created contracts with their hashes, sorted by hash.
    pub codes: Vec<(B256, Bytes)>,
}

impl BlockChanges {
    fn new(changes: Vec<(Address, EntryChange)>, codes: Vec<(B256, Bytes)>) -> Self {
        let mut codes = codes;
        codes.sort_unstable_by_key(|(hash, _)| *hash);
        codes.dedup_by_key(|(hash, _)| *hash);
        Self {
            changes: Changes::new(with_paths(changes)),
            codes,
        }
    }

    /// The changes of one transaction or system call, as revm returns them: `ResultAndState::state`. A state
    /// of several transactions does not say what the earlier ones changed: [`BlockState`] knows.
    ///
    /// | in `state` | change |
    /// |---|---|
    /// | not touched | none |
    /// | destroyed, or touched and empty (EIP-161) | the account and its storage are deleted |
    /// | created | fields, a wipe of older storage, the slots that are not zero |
    /// | else | fields, and the slots whose value has changed |
    ///
    /// The changes of several transactions follow from those of each by
    /// [`Changes::then`]. [`BlockState`] does the same in one pass.
    pub fn of_evm_state(state: &EvmState) -> Self {
        let touched = state.iter().filter(|(_, account)| account.is_touched());
        let mut codes = Vec::new();
        let changes = touched.map(|(address, touched)| {
            if is_gone(touched) {
                return (*address, EntryChange::deletion());
            }
            let is_created = touched.is_created();
            let slots = touched.storage.iter();
            let slots = slots.filter(|(_, slot)| match is_created {
                true => !slot.present_value.is_zero(),
                false => slot.present_value != slot.original_value,
            });
            if is_created || touched.info.code_hash != touched.original_info().code_hash {
                codes.extend(code_of(&touched.info));
            }
            let change = EntryChange {
                account: AccountUpdate::Put(account(&touched.info)),
                wipe: is_created,
                slots: slots
                    .map(|(key, slot)| (*key, slot.present_value))
                    .collect(),
            };
            (*address, change)
        });
        let changes = changes.collect();
        Self::new(changes, codes)
    }

    /// The changes that revm's `State` has collected in a bundle, of one block or of several.
    ///
    /// An account that was destroyed has its older storage wiped, also where it was created again. An account that
    /// existed neither before nor after is skipped.
    pub fn of_bundle(bundle: &BundleState) -> Self {
        let changes = bundle.state.iter();
        let changes = changes.filter_map(|(address, account)| {
            let change = bundle_change(account)?;
            Some((*address, change))
        });
        let codes = bundle.contracts.iter();
        let codes = codes.filter(|(_, code)| !code.is_empty());
        let codes = codes.map(|(hash, code)| (*hash, code.original_bytes()));
        Self::new(changes.collect(), codes.collect())
    }
}

/// The code of an account, if revm has it at hand.
fn code_of(info: &AccountInfo) -> Option<(B256, Bytes)> {
    let code = info.code.as_ref().filter(|code| !code.is_empty())?;
    Some((info.code_hash, code.original_bytes()))
}

fn bundle_change(changed: &BundleAccount) -> Option<EntryChange> {
    let Some(info) = &changed.info else {
        changed.original_info.as_ref()?;
        return Some(EntryChange::deletion());
    };
    let wipe = changed.was_destroyed();
    let now = account(info);
    let account = match &changed.original_info {
        Some(before) if account(before) == now => AccountUpdate::Keep,
        _ => AccountUpdate::Put(now),
    };
    let slots = changed.storage.iter().filter(|(_, slot)| match wipe {
        true => !slot.present_value.is_zero(),
        false => slot.is_changed(),
    });
    let slots: Vec<_> = slots
        .map(|(key, slot)| (*key, slot.present_value))
        .collect();
    let is_change = account != AccountUpdate::Keep || wipe || !slots.is_empty();
    is_change.then_some(EntryChange {
        account,
        wipe,
        slots,
    })
}

/// A state with the writes of a block on top: a database for revm that collects what is committed to
/// it, for callers that build blocks or execute them by themselves.
///
/// Each transaction is committed by itself, as `transact_commit` does: in one state of several transactions
/// (`transact_many_commit`) an account that one of them destroyed and a later one paid would be deleted.
///
/// Reads are of the block so far. [`DatabaseCommit::commit`] can't return an error, so it is kept, and
/// [`BlockState::finish`] returns the first one: reads in between may lack writes.
pub struct BlockState<S: StateRead> {
    overlay: Overlay<S>,
    /// The first error of a commit.
    failed: Option<S::Error>,
}

impl<S: StateRead> BlockState<S> {
    /// The state below a block, of which nothing is executed yet.
    pub fn new(below: S) -> Self {
        let mode = OverlayMode {
            wipes: true,
            ..OverlayMode::default()
        };
        Self {
            overlay: Overlay::new(below, mode),
            failed: None,
        }
    }

    /// The state below the block.
    pub const fn below(&self) -> &S {
        self.overlay.below()
    }

    /// Adds to a balance outside any transaction: withdrawals (in wei), and rewards before the merge.
    /// An account that is empty then does not exist (EIP-161).
    ///
    /// # Errors
    ///
    /// If the state can't be read.
    pub fn add_balance(&mut self, address: Address, wei: U256) -> Result<(), S::Error> {
        let before = self.overlay.account(address)?;
        let before = before.map_or(U256::ZERO, |account| account.balance);
        self.overlay
            .set_balance(address, before.saturating_add(wei), false)
    }

    /// The difference to the state below, and the codes of created contracts.
    ///
    /// # Errors
    ///
    /// The first error that a commit met.
    pub fn finish(self) -> Result<BlockChanges, S::Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let (changes, codes) = self.overlay.finish();
        Ok(BlockChanges { changes, codes })
    }
}

impl<S: StateRead> Database for BlockState<S> {
    type Error = S::Error;

    fn basic(&mut self, address: Address) -> Result<Option<AccountInfo>, S::Error> {
        self.overlay.basic(address)
    }

    fn code_by_hash(&mut self, code_hash: B256) -> Result<Bytecode, S::Error> {
        self.overlay.code_by_hash(code_hash)
    }

    fn storage(&mut self, address: Address, index: U256) -> Result<U256, S::Error> {
        self.overlay.storage(address, index)
    }

    fn block_hash(&mut self, number: u64) -> Result<B256, S::Error> {
        self.overlay.block_hash(number)
    }
}

impl<S: StateRead> DatabaseCommit for BlockState<S> {
    fn commit(&mut self, changes: AddressMap<TouchedAccount>) {
        if let Err(error) = self.overlay.commit(changes) {
            self.failed.get_or_insert(error);
        }
    }
}
