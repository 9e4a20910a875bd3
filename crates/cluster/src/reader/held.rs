//! The state of a reader as threads execute on it: no lock is taken for a read.

use super::{error::ReaderError, state::Reader, trie::StateTrie, view::Leaf};
use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256, map::HashMap};
use cambium_evm::{StateRead, account_info};
use cambium_primitives::Account;
use cambium_state::bytecode;
use cambium_trie::ProofTargets;
use parking_lot::Mutex;
use revm::{DatabaseRef, bytecode::Bytecode, state::AccountInfo};

/// What a reader has, held for some time. Nothing is loaded meanwhile: a read of what is missing fails, and is noted.
#[derive(Debug)]
pub(crate) struct HeldState<'r> {
    reader: &'r Reader,
    trie: &'r StateTrie,
    codes: &'r HashMap<B256, Bytes>,
    missed: Mutex<Missed>,
}

/// Accounts, slots and codes that were missing.
#[derive(Debug, Default)]
pub(crate) struct Missed {
    targets: Vec<(B256, Vec<B256>)>,
    /// Each with an account that has it.
    codes: Vec<(B256, B256)>,
}

impl Missed {
    pub(crate) const fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.codes.is_empty()
    }
}

impl Reader {
    /// Runs `work` on what is loaded. Returns its result, and what it missed.
    pub(crate) fn held<T>(&self, work: impl FnOnce(&HeldState<'_>) -> T) -> (T, Missed) {
        let (trie, codes) = (self.trie.read(), self.codes.read());
        let state = HeldState {
            reader: self,
            trie: &trie,
            codes: &codes,
            missed: Mutex::default(),
        };
        let result = work(&state);
        (result, state.missed.into_inner())
    }

    /// Loads what was missed.
    ///
    /// # Errors
    ///
    /// If no replica has an answer that can be verified.
    pub(crate) fn load_missed(&self, missed: Missed) -> Result<(), ReaderError> {
        let Missed { targets, mut codes } = missed;
        self.load(&ProofTargets::new(targets), Default::default())?;
        codes.sort_unstable();
        codes.dedup_by_key(|(hash, _)| *hash);
        match codes.is_empty() {
            true => Ok(()),
            false => self.ask(Vec::new(), codes),
        }
    }
}

impl HeldState<'_> {
    fn miss<T>(&self, note: impl FnOnce(&mut Missed)) -> Result<T, ReaderError> {
        note(&mut self.missed.lock());
        Err(ReaderError::Incomplete(self.reader.block))
    }

    fn account(&self, path: &B256) -> Result<Option<Account>, ReaderError> {
        match Leaf::of(self.trie.account(path)) {
            Some(leaf) => Ok(leaf.and_then(Leaf::account)),
            None => self.miss(|missed| missed.targets.push((*path, Vec::new()))),
        }
    }
}

impl DatabaseRef for HeldState<'_> {
    type Error = ReaderError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, ReaderError> {
        let path = keccak256(address);
        let Some(account) = self.account(&path)? else {
            return Ok(None);
        };
        let hash = account.code_hash;
        if hash != KECCAK256_EMPTY && !self.codes.contains_key(&hash) {
            return self.miss(|missed| missed.codes.push((hash, path)));
        }
        Ok(Some(account_info(account)))
    }

    fn code_by_hash_ref(&self, code_hash: B256) -> Result<Bytecode, ReaderError> {
        let block = self.reader.block;
        if code_hash == KECCAK256_EMPTY {
            return Ok(Bytecode::default());
        }
        let code = self.codes.get(&code_hash).cloned();
        let code = code.ok_or(ReaderError::Code {
            block,
            code: code_hash,
        })?;
        Ok(bytecode(code))
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, ReaderError> {
        let (account, slot) = (keccak256(address), keccak256(B256::from(index)));
        match Leaf::of(self.trie.slot(&account, &slot)) {
            Some(leaf) => Ok(leaf.and_then(Leaf::slot).unwrap_or_default()),
            None => self.miss(|missed| missed.targets.push((account, vec![slot]))),
        }
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, ReaderError> {
        self.reader.block_hash_ref(number)
    }
}

impl StateRead for HeldState<'_> {
    fn has_storage(&self, address: Address) -> Result<bool, ReaderError> {
        let path = keccak256(address);
        self.account(&path)?;
        Ok(self.trie.has_storage(&path))
    }
}
