//! The state at one block: immutable, cheap to make, never in a writer's way.

use crate::{
    engine::{parts::Engine, past_states::PastState},
    layers::{overlay::Overlay, tree::Layer},
    tries::base::Base,
};
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_primitives::{
    Account, AccountChange, AccountUpdate, BlockId, BlockNumber, Changes, KECCAK_EMPTY, Path,
};
use cambium_snapshot::StateError;
use cambium_trie::TrieError;
use revm::{bytecode::Bytecode, database_interface::DatabaseRef, state::AccountInfo};
use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

/// The state after a block. Clones are cheap; threads may share it.
///
/// It keeps what it needs in memory and on disk for as long as it lives, so don't hoard views.
#[derive(Clone)]
pub struct View {
    pub(crate) inner: Arc<Engine>,
    pub(crate) base: Arc<Base>,
    pub(crate) overlay: Arc<Overlay>,
    pub(crate) layer: Arc<Layer>,
    /// If the state was brought back for views alone.
    pub(crate) past: Option<Arc<PastState>>,
}

impl View {
    /// The block whose state this is.
    pub fn block(&self) -> BlockId {
        self.layer.block
    }

    /// The state root.
    pub fn state_root(&self) -> B256 {
        self.layer.state_root
    }

    /// The account at keccak(address); `None` if there is none.
    pub fn account(&self, path: &B256) -> Result<Option<Account>, StateError> {
        self.read(path)
    }

    /// An account as revm takes it, without its code.
    pub fn account_info(account: Account) -> AccountInfo {
        AccountInfo {
            balance: account.balance,
            nonce: account.nonce,
            code_hash: account.code_hash,
            code: None,
            ..AccountInfo::default()
        }
    }

    /// The slot at keccak(slot) of the account at keccak(address); zero if it is not set.
    pub fn slot(&self, account: &B256, slot: &B256) -> Result<U256, StateError> {
        self.read(&(*account, *slot))
    }

    /// The account as the layers above the snapshot left it; outer `None` if none wrote it.
    pub(crate) fn account_above(&self, path: &B256) -> Option<Option<Account>> {
        self.overlay
            .account(path, &self.layer.ancestors)
            .or_else(|| {
                let middle = self.base.intermediate.as_ref()?;
                middle.overlay.account(path, &middle.ancestors)
            })
    }

    /// The slot as the layers above the snapshot left it; `None` if none wrote it.
    pub(crate) fn slot_above(&self, account: &B256, slot: &B256) -> Option<U256> {
        self.overlay
            .slot(account, slot, &self.layer.ancestors)
            .or_else(|| {
                let middle = self.base.intermediate.as_ref()?;
                middle.overlay.slot(account, slot, &middle.ancestors)
            })
    }

    /// All slots of an account that are not zero, by path. Takes memory for all of them:
    /// [`View::each_slot`] does not.
    pub fn slots(&self, account: &B256) -> Result<Vec<(B256, U256)>, StateError> {
        let mut slots = Vec::new();
        self.each_slot(account, |slot, value| {
            slots.push((slot, value));
            ControlFlow::Continue(())
        })?;
        Ok(slots)
    }

    /// Visits the slots of an account that are not zero, in the order of their paths, until told to
    /// stop. Of what is in pages one page is in memory at a time.
    pub fn each_slot(
        &self,
        account: &B256,
        mut visit: impl FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<(), StateError> {
        let (above, wiped) = self.slots_above(account);
        let mut above = above.into_iter().peekable();
        let mut below = match wiped {
            true => None,
            false => Some(self.base.snapshot.slots(account)?),
        };
        let mut next_below = match &mut below {
            Some(below) => below.next()?,
            None => None,
        };
        loop {
            let is_above_next = match (above.peek(), &next_below) {
                (None, None) => return Ok(()),
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some((above, _)), Some((below, _))) => above <= below,
            };
            let (slot, value) = match is_above_next {
                true => above.next().expect("just peeked at"),
                false => next_below.expect("just looked at"),
            };
            if next_below.is_some_and(|(below, _)| below == slot) {
                next_below = match &mut below {
                    Some(below) => below.next()?,
                    None => None,
                };
            }
            if !value.is_zero() && visit(slot, value).is_break() {
                return Ok(());
            }
        }
    }

    /// The slots that the layers above the snapshot wrote, zeros included, and whether those in the
    /// snapshot count no more.
    fn slots_above(&self, account: &B256) -> (BTreeMap<B256, U256>, bool) {
        let (newest, wiped) = self.overlay.slots_of(account, &self.layer.ancestors);
        let mut slots = BTreeMap::new();
        let mut all_wiped = wiped;
        if !wiped && let Some(middle) = &self.base.intermediate {
            let (older, wiped) = middle.overlay.slots_of(account, &middle.ancestors);
            slots.extend(older);
            all_wiped = wiped;
        }
        slots.extend(newest);
        (slots, all_wiped)
    }

    /// Whether an account has any slot that is not zero: known by the first one.
    pub fn has_storage(&self, account: &B256) -> Result<bool, StateError> {
        let mut has_one = false;
        self.each_slot(account, |_, _| {
            has_one = true;
            ControlFlow::Break(())
        })?;
        Ok(has_one)
    }

    /// The code of that hash.
    pub fn code(&self, hash: &B256) -> Result<Bytes, StateError> {
        Ok(self.bytecode(hash)?.original_bytes())
    }

    /// The code of that hash, ready to run.
    fn bytecode(&self, hash: &B256) -> Result<Bytecode, StateError> {
        if *hash == KECCAK_EMPTY {
            return Ok(Bytecode::default());
        }
        self.inner
            .store
            .code_cache
            .get(hash, &self.inner.store.codes)
    }

    /// The hash of an ancestor, or of this block itself; `None` above it, and below the first block.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if the view has outlived its block: once a branch is given up,
    /// nobody knows its blocks any more.
    pub fn block_hash(&self, number: BlockNumber) -> Result<Option<B256>, StateError> {
        if number > self.layer.block.number {
            return Ok(None);
        }
        self.inner.ancestor_hash(&self.layer, number)
    }

    /// What takes `changes` back: the values here of all that they touch.
    pub(crate) fn reverts_of(&self, changes: &Changes) -> Result<Changes, StateError> {
        let touched = Touched::by(changes);
        let accounts = self.accounts(&touched.accounts)?;
        self.reverts_from(changes, accounts, self.storage(&touched.slots)?)
    }

    /// Refuses slots of accounts that are not there, neither in this state nor by changes `before`.
    pub(crate) fn check_owners(
        &self,
        before: &Changes,
        changes: &Changes,
    ) -> Result<(), StateError> {
        let is_set = |change: &&AccountChange| {
            let keeps = matches!(change.account, AccountUpdate::Keep);
            keeps && change.slots.iter().any(|(_, value)| !value.is_zero())
        };
        let mut unknown = Vec::new();
        for change in changes.accounts().iter().filter(is_set) {
            let path = change.path;
            match before.account(&path).map(|before| &before.account) {
                Some(AccountUpdate::Put(_)) => {}
                Some(AccountUpdate::Delete) => return Err(no_account(path)),
                Some(AccountUpdate::Keep) | None => unknown.push(path),
            }
        }
        let there = self.accounts(&unknown)?;
        match unknown
            .iter()
            .zip(there)
            .find(|(_, account)| account.is_none())
        {
            Some((path, _)) => Err(no_account(*path)),
            None => Ok(()),
        }
    }

    /// Whether its block was given up: then another one of its name is none of its.
    pub(crate) fn check_alive(&self) -> Result<(), StateError> {
        match self.layer.is_dropped() {
            true => Err(StateError::UnknownBlock(self.layer.block.hash)),
            false => Ok(()),
        }
    }

    /// As above, from the values of the accounts and slots that are [`Touched`].
    pub(crate) fn reverts_from(
        &self,
        changes: &Changes,
        accounts: Vec<Option<Account>>,
        slots: Vec<U256>,
    ) -> Result<Changes, StateError> {
        let mut values = slots.into_iter();
        let revert = |(change, account): (&AccountChange, Option<Account>)| {
            let path = change.path;
            let mut slots = Vec::with_capacity(if change.wipe { 0 } else { change.slots.len() });
            if !change.wipe {
                let paths = change.slots.iter().map(|(slot, _)| *slot);
                slots.extend(paths.zip(values.by_ref()));
            }
            let Some(account) = account else {
                return Ok(AccountChange {
                    path,
                    account: AccountUpdate::Delete,
                    wipe: true,
                    slots: Vec::new(),
                });
            };
            if change.wipe {
                // Back to exactly what there was: clear what came since, then all old slots.
                slots = self.slots(&path)?;
            }
            let account = match change.account {
                AccountUpdate::Keep => AccountUpdate::Keep,
                AccountUpdate::Put(_) | AccountUpdate::Delete => AccountUpdate::Put(account),
            };
            Ok(AccountChange {
                path,
                account,
                wipe: change.wipe,
                slots,
            })
        };
        let reverts = changes.accounts().iter().zip(accounts).map(revert);
        Ok(Changes::new(reverts.collect::<Result<_, StateError>>()?))
    }
}

fn no_account(path: B256) -> StateError {
    let path = Path::account(&path);
    StateError::BadChanges(TrieError::NoAccount { path })
}

/// What changes touch, in their order. What is wiped is read as a whole, not by slot.
pub(crate) struct Touched {
    pub(crate) accounts: Vec<B256>,
    pub(crate) slots: Vec<(B256, B256)>,
}

impl Touched {
    pub(crate) fn by(changes: &Changes) -> Self {
        let changes = changes.accounts();
        let kept = changes.iter().filter(|change| !change.wipe);
        Self {
            accounts: changes.iter().map(|change| change.path).collect(),
            slots: kept
                .flat_map(|change| change.slots.iter().map(|(slot, _)| (change.path, *slot)))
                .collect(),
        }
    }
}

/// revm asks by address and slot number; paths are their hashes.
impl DatabaseRef for View {
    type Error = StateError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, StateError> {
        let account = self.account(&keccak256(address))?;
        Ok(account.map(Self::account_info))
    }

    fn code_by_hash_ref(&self, code_hash: B256) -> Result<Bytecode, StateError> {
        self.bytecode(&code_hash)
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, StateError> {
        self.slot(&keccak256(address), &keccak256(index.to_be_bytes::<32>()))
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, StateError> {
        Ok(self.block_hash(number)?.unwrap_or_default())
    }
}
