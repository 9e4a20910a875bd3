//! Initialization of a chain's database from its genesis.

use crate::{
    Block, Chain, ChainError, ChainSpec, FileError, Genesis, GenesisAccount, GenesisError,
    GenesisPart, InputFile, Progress,
    chain::SPEC,
    error::unreadable_spec,
    files::buffered,
    genesis::each_part,
    preimages::{FirstPreimages, options as preimages_options},
    stored::{KnownBlock, meta},
};
use alloy_consensus::{BlockBody, Header};
use alloy_primitives::{B256, KECCAK256_EMPTY, U256, keccak256};
use alloy_rlp::Encodable;
use cambium_primitives::{AccessList, Account, BlockId, Path as StatePath};
use cambium_state::{Disk, KeptStorage, LoadProgress, Loaded, Loader, Options, StateError};
use cambium_trie::{EMPTY_ROOT, TrieError, layered_root};
use rayon::prelude::*;
use std::{
    fs::File,
    io::{self, Seek},
    path::Path,
    sync::Arc,
};

/// Number of accounts and slots between progress reports.
const TELL_ACCOUNTS: u64 = 4096;

/// With what a database is initialized. [`Options`] alone are it, too: `options.into()`.
#[derive(Clone, Debug, Default)]
pub struct InitOptions {
    /// The options of the engine.
    pub db: Options,
    /// Whether to keep the addresses and the keys of slots behind the hashes in the state, from the first state on:
    /// see [`Chain::preimages`]. They can't be had later.
    pub preimages: bool,
    /// The contracts whose storage is kept, for a partial database. The first state is given whole, and its root is computed
    /// from all of it. `None` keeps all storage.
    pub storage_of: Option<KeptStorage>,
}

impl From<Options> for InitOptions {
    fn from(db: Options) -> Self {
        Self {
            db,
            ..Self::default()
        }
    }
}

impl InitOptions {
    /// Begins a database on a disk that has none.
    pub(crate) fn begin(self, disk: Arc<dyn Disk>) -> Result<(Loader, FirstPreimages), ChainError> {
        let loader = match self.storage_of {
            None => Loader::new(disk.clone(), self.db)?,
            Some(_) if self.preimages => {
                return Err(StateError::NotOnPartial("keeping preimages").into());
            }
            Some(kept) => Loader::partial(disk.clone(), self.db, kept)?,
        };
        let wanted = self
            .preimages
            .then(|| preimages_options(self.db.memory_bytes));
        Ok((loader, FirstPreimages::begin(disk, wanted)?))
    }
}

/// Progress of initializing a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitProgress {
    /// Accounts are being read or generated.
    Accounts {
        /// Bytes of the genesis file, or accounts and slots of a genesis without a file, so far.
        done: u64,
        /// Total of these; 0 if it is unknown.
        of: u64,
    },
    /// The state trie and its pages are being built.
    State(LoadProgress),
}

impl Chain {
    /// Initializes a database on `disk` from a genesis file.
    ///
    /// # Errors
    ///
    /// [`ChainError::Genesis`] if the file can't be read, is malformed, or has rules that are not known here;
    /// [`ChainError::State`] if there is a database already, or it can't be written.
    pub fn init(
        disk: Arc<dyn Disk>,
        genesis: impl AsRef<Path>,
        options: impl Into<InitOptions>,
        progress: &mut dyn FnMut(InitProgress),
    ) -> Result<Self, ChainError> {
        // Opened first, so that nothing is created if the file does not exist.
        Self::init_from(disk, open(genesis.as_ref())?, options, progress)
    }

    /// As [`init`](Self::init), from an open file, such as standard input.
    ///
    /// # Errors
    ///
    /// As [`init`](Self::init).
    pub fn init_from(
        disk: Arc<dyn Disk>,
        genesis: InputFile,
        options: impl Into<InitOptions>,
        progress: &mut dyn FnMut(InitProgress),
    ) -> Result<Self, ChainError> {
        let again = Again::of(&genesis);
        let (mut loader, preimages) = options.into().begin(disk)?;
        let genesis = read(genesis, progress, |part| {
            take(&mut loader, &preimages, part)
        })?;
        genesis.check_rules()?;
        let loaded = loader
            .finish(&mut |built| progress(InitProgress::State(built)))
            .map_err(|error| again.given_twice(error.into()))?;
        Self::from_genesis(loaded, &genesis, preimages)
    }

    /// Initializes a database on `disk` from a genesis in memory, as alloy has it
    /// ([`Genesis::of_alloy`]).
    ///
    /// ```
    /// use alloy_genesis::{ChainConfig, GenesisAccount};
    /// use alloy_primitives::{Address, U256};
    /// use cambium_chain::{Chain, ChainError};
    /// use cambium_state::{FaultyDisk, Options};
    /// use std::sync::Arc;
    ///
    /// let rich = GenesisAccount::default().with_balance(U256::from(1_000));
    /// let mut genesis = alloy_genesis::Genesis::default()
    ///     .with_gas_limit(30_000_000)
    ///     .extend_accounts([(Address::repeat_byte(0xa1), rich)]);
    /// genesis.config = ChainConfig {
    ///     chain_id: 1337,
    ///     london_block: Some(0),
    ///     terminal_total_difficulty: Some(U256::ZERO),
    ///     shanghai_time: Some(0),
    ///     ..ChainConfig::default()
    /// };
    /// let disk = Arc::new(FaultyDisk::new(1)); // a disk in memory
    /// let chain = Chain::init_genesis(disk, &genesis, Options::default(), &mut |_| {})?;
    /// let rich = chain.db().view()?.account_at(Address::repeat_byte(0xa1))?;
    /// assert_eq!(rich.unwrap().balance, U256::from(1_000));
    /// # Ok::<_, ChainError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the genesis can't be used, or the database can't be written or exists already.
    pub fn init_genesis(
        disk: Arc<dyn Disk>,
        genesis: &alloy_genesis::Genesis,
        options: impl Into<InitOptions>,
        progress: &mut dyn FnMut(InitProgress),
    ) -> Result<Self, ChainError> {
        let header = Genesis::of_alloy(genesis)?;
        header.check_rules()?;
        let (mut loader, preimages) = options.into().begin(disk)?;
        let (mut done, of) = (0u64, header.accounts);
        each_part(genesis, |part| {
            if matches!(part, GenesisPart::Account(..)) {
                done += 1;
                if done.is_multiple_of(TELL_ACCOUNTS) {
                    progress(InitProgress::Accounts { done, of });
                }
            }
            take(&mut loader, &preimages, part)
        })?;
        let loaded = loader.finish(&mut |built| progress(InitProgress::State(built)))?;
        Self::from_genesis(loaded, &header, preimages)
    }

    /// Initializes a database on `disk` from a genesis whose state is made piece by piece: `genesis`
    /// is its header fields and fork rules, and `for_each_part` passes `entries` accounts and slots
    /// to the function that it is given.
    ///
    /// # Errors
    ///
    /// [`ChainError::State`] if there is a database already, or it can't be written;
    /// [`ChainError::Genesis`] if the genesis has no rules, or rules that are not known here.
    pub fn init_parts(
        disk: Arc<dyn Disk>,
        genesis: &Genesis,
        entries: u64,
        for_each_part: impl FnOnce(
            &mut dyn FnMut(GenesisPart) -> Result<(), ChainError>,
        ) -> Result<(), ChainError>,
        options: impl Into<InitOptions>,
        progress: &mut dyn FnMut(InitProgress),
    ) -> Result<Self, ChainError> {
        genesis.check_rules()?;
        let (mut loader, preimages) = options.into().begin(disk)?;
        let mut done = 0;
        for_each_part(&mut |part| {
            let before = done;
            done += match &part {
                GenesisPart::Account(_, account) => 1 + account.storage.len(),
                GenesisPart::Slots(_, slots) => slots.len(),
            } as u64;
            if before / TELL_ACCOUNTS != done / TELL_ACCOUNTS {
                progress(InitProgress::Accounts { done, of: entries });
            }
            take(&mut loader, &preimages, part)
        })?;
        let loaded = loader.finish(&mut |built| progress(InitProgress::State(built)))?;
        Self::from_genesis(loaded, genesis, preimages)
    }

    fn from_genesis(
        loaded: Loaded,
        genesis: &Genesis,
        preimages: FirstPreimages,
    ) -> Result<Self, ChainError> {
        let root = loaded.root();
        let spec = genesis.spec(root)?;
        let header = genesis.header(&spec, root);
        preimages.finish(BlockId::new(header.number, header.hash_slow()))?;
        Self::create(loaded, spec, header)
    }

    /// Creates a database from a loaded state. `header` is that of its first block.
    ///
    /// # Errors
    ///
    /// [`ChainError::State`] if the database can't be written, or if the state root in `header` is not that of
    /// the state.
    pub fn create(loaded: Loaded, spec: ChainSpec, header: Header) -> Result<Self, ChainError> {
        let withdrawals = header.withdrawals_root.is_some().then(Default::default);
        let body = BlockBody {
            transactions: vec![],
            ommers: vec![],
            withdrawals,
        };
        let block = Block::new(header, body);
        let difficulty = block.header.difficulty;
        // A genesis block touches nothing.
        let list = block
            .header
            .block_access_list_hash
            .map(|_| AccessList::default());
        Self::create_at(loaded, spec, &block, difficulty, list.as_ref())
    }

    /// Creates a database from a loaded state that is that of `block`, which becomes its first one.
    pub(crate) fn create_at(
        loaded: Loaded,
        spec: ChainSpec,
        block: &Block,
        total_difficulty: U256,
        access_list: Option<&AccessList>,
    ) -> Result<Self, ChainError> {
        let hash = block.header.hash_slow();
        let mut rlp = Vec::new();
        block.encode(&mut rlp);
        let known = KnownBlock::new(block, total_difficulty);
        let json = serde_json::to_vec(&spec).map_err(|error| unreadable_spec(error.to_string()))?;
        let meta = meta(&known, hash, &rlp, access_list, None, None);
        let db = loaded.create(meta, vec![(SPEC.to_owned(), json)])?;
        Self::new(db, spec)
    }

    /// Checks that a genesis file is that of the database's chain, and returns the genesis header.
    /// Computes the state root, which takes about as long as initializing a database.
    ///
    /// # Errors
    ///
    /// [`ChainError::Genesis`] if the file can't be used, [`ChainError::State`] if its state can't be built, and
    /// [`ChainError::OtherGenesis`] if it is that of another chain.
    pub fn check_genesis_file(
        &self,
        genesis: impl AsRef<Path>,
        progress: &mut dyn FnMut(InitProgress),
    ) -> Result<Header, ChainError> {
        self.check_genesis_from(open(genesis.as_ref())?, progress)
    }

    /// As [`check_genesis_file`](Self::check_genesis_file), from an open file, such as standard input.
    ///
    /// # Errors
    ///
    /// As [`check_genesis_file`](Self::check_genesis_file).
    pub fn check_genesis_from(
        &self,
        genesis: InputFile,
        progress: &mut dyn FnMut(InitProgress),
    ) -> Result<Header, ChainError> {
        let again = Again::of(&genesis);
        let mut loader = self.db().root_loader();
        let genesis = read(genesis, progress, |part| match part {
            GenesisPart::Account(address, account) => {
                let slots = by_path(&account.storage);
                Ok(loader.account(keccak256(address), &fields(&account), slots)?)
            }
            GenesisPart::Slots(address, slots) => {
                Ok(loader.slots(keccak256(address), by_path(&slots))?)
            }
        })?;
        genesis.check_rules()?;
        let root = loader.finish(&mut |built| progress(InitProgress::State(built)));
        let mut root = root.map_err(|error| again.given_twice(error.into()))?;
        if self.db().merge_interval().is_some() {
            root = layered_root(EMPTY_ROOT, EMPTY_ROOT, root);
        }
        let header = genesis.header(&genesis.spec(root)?, root);
        let hash = header.hash_slow();
        self.check_genesis(hash)?;
        let known = self.known(self.db().genesis());
        if matches!(known, Err(error) if error.is_lost_record()) {
            let known = KnownBlock {
                header: header.clone(),
                total_difficulty: header.difficulty,
                ommers: Vec::new(),
            };
            self.remember(hash, known);
        }
        Ok(header)
    }
}

fn open(path: &Path) -> Result<InputFile, GenesisError> {
    InputFile::open(path).map_err(|error| match error {
        FileError::Open { file, source } => GenesisError::Open { file, source },
        error => GenesisError::Open {
            file: path.display().to_string().into(),
            source: io::Error::other(error),
        },
    })
}

/// Reads a genesis file piece by piece, reporting progress.
fn read(
    InputFile { name, file }: InputFile,
    progress: &mut dyn FnMut(InitProgress),
    mut take: impl FnMut(GenesisPart) -> Result<(), ChainError>,
) -> Result<Genesis, ChainError> {
    // The size is known for regular files only.
    let of = file.metadata().ok().filter(|file| file.is_file());
    let of = of.map_or(0, |file| file.len());
    let bytes = Progress::new(of);
    let mut accounts: u64 = 0;
    Genesis::stream_from(&name, buffered(file, &bytes), |part| {
        accounts += 1;
        let has_many_slots = matches!(part, GenesisPart::Slots(..));
        if has_many_slots || accounts.is_multiple_of(TELL_ACCOUNTS) {
            let done = bytes.bytes_read();
            progress(InitProgress::Accounts { done, of });
        }
        take(part)
    })
}

/// The file once more, for finding in it what is there twice. Duplicates are found when paths are sorted;
/// finding the account takes a second pass over the file.
struct Again {
    name: Arc<str>,
    /// `None` for a pipe.
    file: Option<File>,
}

impl Again {
    fn of(InputFile { name, file }: &InputFile) -> Self {
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        Self {
            name: name.clone(),
            file: file.try_clone().ok().filter(|_| is_file),
        }
    }

    /// Turns the error of a duplicate path into one that names the account.
    fn given_twice(self, error: ChainError) -> ChainError {
        let ChainError::State(StateError::Trie(TrieError::Unsorted { path })) = &error else {
            return error;
        };
        let Self {
            name: file,
            file: again,
        } = self;
        let Some(account_hash) = path.account_part() else {
            return error;
        };
        let Some(mut again) = again.filter(|mut again| again.rewind().is_ok()) else {
            return GenesisError::HashTwice { file, account_hash }.into();
        };
        let mut twice = None;
        let reader = io::BufReader::with_capacity(256 << 10, &mut again);
        let read = Genesis::stream_from(&file, reader, |part| {
            if let GenesisPart::Account(address, _) = part
                && keccak256(address) == account_hash
            {
                twice = Some(address);
            }
            Ok::<_, GenesisError>(())
        });
        let (Ok(_), Some(address)) = (read, twice) else {
            return error;
        };
        let is_slot = path.len() > StatePath::account(&B256::ZERO).len();
        ChainError::Genesis(match is_slot {
            true => GenesisError::SlotTwice { file, address },
            false => GenesisError::Twice { file, address },
        })
    }
}

fn take(
    loader: &mut Loader,
    preimages: &FirstPreimages,
    part: GenesisPart,
) -> Result<(), ChainError> {
    let keys = |slots: &[(B256, U256)]| {
        let there = slots.iter().filter(|(_, value)| !value.is_zero());
        there.map(|(slot, _)| *slot).collect::<Vec<_>>()
    };
    match part {
        GenesisPart::Account(address, account) => {
            let fields = fields(&account);
            loader.account(keccak256(address), &fields, by_path(&account.storage))?;
            if !account.code.is_empty() {
                loader.code(fields.code_hash, &account.code)?;
            }
            if preimages.are_wanted() {
                preimages.add(Some(address), keys(&account.storage))?;
            }
        }
        GenesisPart::Slots(address, slots) => {
            loader.slots(keccak256(address), by_path(&slots))?;
            if preimages.are_wanted() {
                preimages.add(None, keys(&slots))?;
            }
        }
    }
    Ok(())
}

fn fields(account: &GenesisAccount) -> Account {
    Account {
        nonce: account.nonce,
        balance: account.balance,
        code_hash: match account.code.is_empty() {
            true => KECCAK256_EMPTY,
            false => keccak256(&account.code),
        },
    }
}

/// Hashes the keys of slots, on all cores.
fn by_path(slots: &[(B256, U256)]) -> Vec<(B256, U256)> {
    let hashed = slots.par_iter().with_min_len(1024);
    hashed
        .map(|(slot, value)| (keccak256(slot), *value))
        .collect()
}
