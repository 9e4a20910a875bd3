//! A reader as the state that revm executes on.

use super::{error::ReaderError, state::Reader, trie::StateTrie};
use alloy_primitives::{
    Address, B256, KECCAK256_EMPTY, U256, keccak256,
    map::{HashMap, HashSet},
};
use cambium_evm::{ManyRead, StateRead, account_info};
use cambium_primitives::Account;
use cambium_state::bytecode;
use cambium_trie::{Deletes, Lookup, ProofTargets};
use revm::{DatabaseRef, bytecode::Bytecode, state::AccountInfo};

/// How often a read is asked for again after an answer that leaves something out.
const ROUNDS_MAX: usize = 3;

impl Reader {
    /// The account at a path.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    pub fn account(&self, path: &B256) -> Result<Option<Account>, ReaderError> {
        self.asking().account(path)
    }

    /// The value of a slot; zero if there is none.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    pub fn slot(&self, account: &B256, slot: &B256) -> Result<U256, ReaderError> {
        self.asking().slot(account, slot)
    }

    const fn asking(&self) -> ReaderView<'_> {
        ReaderView {
            reader: self,
            asks: true,
        }
    }

    /// The same state, without a request to anybody: where a node is missing, a read fails.
    pub const fn without_asking(&self) -> ReaderView<'_> {
        ReaderView {
            reader: self,
            asks: false,
        }
    }
}

/// The state of a [`Reader`], with or without requests for what is missing.
#[derive(Clone, Copy, Debug)]
pub struct ReaderView<'r> {
    reader: &'r Reader,
    asks: bool,
}

impl ReaderView<'_> {
    fn account(&self, path: &B256) -> Result<Option<Account>, ReaderError> {
        let targets = || vec![(*path, vec![])];
        let found = self.lookup(|trie| Leaf::of(trie.account(path)), targets)?;
        Ok(found.and_then(|leaf| leaf.account()))
    }

    fn slot(&self, account: &B256, slot: &B256) -> Result<U256, ReaderError> {
        let targets = || vec![(*account, vec![*slot])];
        let found = self.lookup(|trie| Leaf::of(trie.slot(account, slot)), targets)?;
        Ok(found.and_then(|leaf| leaf.slot()).unwrap_or_default())
    }

    fn lookup(
        &self,
        find: impl Fn(&StateTrie) -> Option<Option<Leaf>>,
        targets: impl Fn() -> Vec<(B256, Vec<B256>)>,
    ) -> Result<Option<Leaf>, ReaderError> {
        let reader = self.reader;
        for _ in 0..ROUNDS_MAX {
            let found = find(&reader.trie.read());
            match found {
                Some(leaf) => return Ok(leaf),
                None if !self.asks => break,
                None => {}
            }
            reader.load(&ProofTargets::new(targets()), Deletes::Nothing)?;
        }
        Err(ReaderError::Incomplete(reader.block))
    }
}

/// A leaf of the state trie.
pub(super) enum Leaf {
    Account(Account),
    Slot(U256),
}

impl Leaf {
    /// What a look-up found. `None` at a blinded node.
    pub(super) fn of(found: Lookup<'_>) -> Option<Option<Self>> {
        match found {
            Lookup::Account(account) => Some(Some(Self::Account(account))),
            Lookup::Slot(value) => Some(Some(Self::Slot(value))),
            Lookup::Absent | Lookup::Entry(_) => Some(None),
            Lookup::Stub { .. } => None,
        }
    }

    pub(super) const fn account(self) -> Option<Account> {
        match self {
            Self::Account(account) => Some(account),
            Self::Slot(_) => None,
        }
    }

    pub(super) const fn slot(self) -> Option<U256> {
        match self {
            Self::Slot(value) => Some(value),
            Self::Account(_) => None,
        }
    }
}

impl DatabaseRef for ReaderView<'_> {
    type Error = ReaderError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, ReaderError> {
        let path = keccak256(address);
        let Some(account) = self.account(&path)? else {
            return Ok(None);
        };
        let hash = account.code_hash;
        let reader = self.reader;
        if hash != KECCAK256_EMPTY && !reader.codes.read().contains_key(&hash) {
            if !self.asks {
                return Err(ReaderError::Incomplete(reader.block));
            }
            // Execution asks for a code by its hash alone, which no shard is known by.
            reader.ask(Vec::new(), vec![(hash, path)])?;
        }
        Ok(Some(account_info(account)))
    }

    fn code_by_hash_ref(&self, code_hash: B256) -> Result<Bytecode, ReaderError> {
        let block = self.reader.block;
        if code_hash == KECCAK256_EMPTY {
            return Ok(Bytecode::default());
        }
        let code = self.reader.codes.read().get(&code_hash).cloned();
        let code = code.ok_or(ReaderError::Code {
            block,
            code: code_hash,
        })?;
        Ok(bytecode(code))
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, ReaderError> {
        self.slot(&keccak256(address), &keccak256(B256::from(index)))
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, ReaderError> {
        let hash = self.reader.hashes.get(&number).copied();
        hash.ok_or(ReaderError::BlockHash(number))
    }
}

impl DatabaseRef for Reader {
    type Error = ReaderError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, ReaderError> {
        self.asking().basic_ref(address)
    }

    fn code_by_hash_ref(&self, code_hash: B256) -> Result<Bytecode, ReaderError> {
        self.asking().code_by_hash_ref(code_hash)
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, ReaderError> {
        self.asking().storage_ref(address, index)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, ReaderError> {
        self.asking().block_hash_ref(number)
    }
}

impl StateRead for ReaderView<'_> {
    fn has_storage(&self, address: Address) -> Result<bool, ReaderError> {
        let path = keccak256(address);
        self.account(&path)?;
        Ok(self.reader.trie.read().has_storage(&path))
    }
}

impl StateRead for Reader {
    fn has_storage(&self, address: Address) -> Result<bool, ReaderError> {
        self.asking().has_storage(address)
    }

    fn read_all(
        &self,
        accounts: &[Address],
        slots: &[(Address, U256)],
    ) -> Result<ManyRead, ReaderError> {
        let mut targets = HashMap::<B256, HashSet<B256>>::default();
        for address in accounts {
            targets.entry(keccak256(address)).or_default();
        }
        for (address, slot) in slots {
            let slots = targets.entry(keccak256(address)).or_default();
            slots.insert(keccak256(B256::from(*slot)));
        }
        let targets = targets.into_iter();
        let targets = targets.map(|(account, slots)| (account, slots.into_iter().collect()));
        self.load(&ProofTargets::new(targets.collect()), Deletes::Nothing)?;
        let mut codes = Vec::new();
        for address in accounts {
            let path = keccak256(address);
            let account = self.account(&path)?.unwrap_or_default();
            let hash = account.code_hash;
            if hash != KECCAK256_EMPTY && !self.codes.read().contains_key(&hash) {
                codes.push((hash, path));
            }
        }
        codes.sort_unstable();
        codes.dedup_by_key(|(hash, _)| *hash);
        if !codes.is_empty() {
            self.ask(Vec::new(), codes)?;
        }
        let accounts = accounts.iter().map(|address| self.basic_ref(*address));
        let accounts = accounts.collect::<Result<_, _>>()?;
        let slots = slots.iter();
        let values = slots.map(|(address, slot)| self.storage_ref(*address, *slot));
        Ok((accounts, values.collect::<Result<_, _>>()?))
    }
}
