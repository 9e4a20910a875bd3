//! Blockchain tests in the format of ethereum/tests and the execution specs: a genesis block,
//! blocks of which some are invalid, and the expected head and state.

use crate::{Case, Pack, Suite, Verdict, json_files, refusals};
use alloy_eips::eip7840::BlobParams;
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, Bytes, U64, U256, keccak256};
use alloy_rlp::Decodable;
use cambium_chain::{AmsterdamRules, Block, ChainSpec};
use cambium_primitives::{Account, AccountChanges, AccountDiff, AccountUpdate, Changes};
use cambium_testkit::{Backend, blob_schedule, network};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs,
    marker::PhantomData,
    path::{Path, PathBuf},
};

/// Accounts by address, in the format of fixtures and genesis files.
pub type Alloc = BTreeMap<Address, AllocAccount>;

/// An account in the format of fixtures and genesis files.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AllocAccount {
    /// Balance in wei.
    pub balance: U256,
    /// Nonce.
    pub nonce: U64,
    /// Code.
    pub code: Bytes,
    /// Slots and values.
    pub storage: BTreeMap<U256, U256>,
}

/// Returns accounts as changes to the empty state, and their codes by hash.
pub fn alloc_changes(alloc: &Alloc) -> (Changes, Vec<(B256, Bytes)>) {
    let mut codes = Vec::new();
    let accounts = alloc.iter().map(|(address, account)| {
        if !account.code.is_empty() {
            codes.push((keccak256(&account.code), account.code.clone()));
        }
        let slots = account.storage.iter().filter(|(_, value)| !value.is_zero());
        AccountDiff {
            path: keccak256(address),
            account: AccountUpdate::Put(plain(account)),
            wipe: false,
            slots: slots
                .map(|(s, value)| (keccak256(s.to_be_bytes::<32>()), *value))
                .collect(),
        }
    });
    let changes = Changes::new(accounts.collect());
    (changes, codes)
}

fn plain(account: &AllocAccount) -> Account {
    let code_hash = if account.code.is_empty() {
        KECCAK256_EMPTY
    } else {
        keccak256(&account.code)
    };
    Account {
        nonce: account.nonce.to(),
        balance: account.balance,
        code_hash,
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fixture {
    pub(crate) network: String,
    #[serde(rename = "genesisRLP")]
    genesis_rlp: Bytes,
    pre: Alloc,
    post_state: Option<Alloc>,
    post_state_hash: Option<B256>,
    lastblockhash: B256,
    pub(crate) blocks: Vec<FixtureBlock>,
    config: Option<Config>,
}

impl Fixture {
    /// Returns the fork rules of the chain, or `None` if its network is unknown.
    pub(crate) fn spec(&self, pack: Pack) -> Option<ChainSpec> {
        let mut spec = network(&self.network)?;
        if pack == Pack::Amsterdam {
            spec.amsterdam_rules = AmsterdamRules::Lists;
        }
        let Some(config) = &self.config else {
            return Some(spec);
        };
        if let Some(id) = config.chainid {
            spec.chain_id = id.to();
        }
        if let Some(schedule) = &config.blob_schedule {
            let params = schedule.iter().map(|(fork, blobs)| {
                let params = BlobParams {
                    target_blob_count: blobs.target.to(),
                    max_blob_count: blobs.max.to(),
                    update_fraction: blobs.base_fee_update_fraction.to(),
                    ..BlobParams::cancun()
                };
                (fork.clone(), params)
            });
            spec.blob_schedule = blob_schedule(&params.collect());
        }
        Some(spec)
    }

    /// Creates a chain with only the genesis block.
    pub(crate) fn start<B: Backend>(&self, spec: ChainSpec) -> Result<B, String> {
        let genesis = Block::decode(&mut self.genesis_rlp.as_ref())
            .map_err(|error| format!("the genesis block: {error}"))?;
        let (changes, codes) = alloc_changes(&self.pre);
        B::new(spec, genesis.header, changes, codes)
            .map_err(|error| format!("the genesis: {error}"))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FixtureBlock {
    /// RLP as hex. Invalid blocks may have text that is not hex.
    pub(crate) rlp: String,
    pub(crate) expect_exception: Option<String>,
    block_access_list: Option<Vec<AccountChanges>>,
    /// The execution witness (EIP-8025), which may be incomplete.
    pub(crate) execution_witness: Option<serde_json::Value>,
    /// Expected output of a stateless guest program: a hash, whether the block is proven, and the
    /// chain id.
    pub(crate) stateless_output_bytes: Option<Bytes>,
    /// Parts of an invalid block, which its RLP may not have.
    #[serde(rename = "rlp_decoded")]
    decoded: Option<DecodedBlock>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DecodedBlock {
    block_access_list: Option<Vec<AccountChanges>>,
}

impl FixtureBlock {
    /// Returns the RLP of the access list that came with the block, in whichever field the fixture
    /// has it.
    fn access_list(&self) -> Option<Vec<u8>> {
        let inner = self.decoded.as_ref();
        let inner = inner.and_then(|decoded| decoded.block_access_list.as_ref());
        let accounts = self.block_access_list.as_ref().or(inner)?;
        let mut rlp = Vec::new();
        alloy_rlp::encode_list(accounts, &mut rlp);
        Some(rlp)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    chainid: Option<U64>,
    blob_schedule: Option<BTreeMap<String, Blobs>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Blobs {
    target: U64,
    max: U64,
    base_fee_update_fraction: U64,
}

/// One blockchain test on a backend.
pub struct BlockchainCase<B> {
    name: String,
    pack: Pack,
    fixture: Fixture,
    backend: PhantomData<fn() -> B>,
}

impl<B: Backend> BlockchainCase<B> {
    /// Returns the fork rules of the chain, or `None` if its network is unknown.
    pub fn spec(&self) -> Option<ChainSpec> {
        self.fixture.spec(self.pack)
    }

    /// Imports the blocks, with or without their access lists.
    fn check(&self, spec: ChainSpec, with_lists: bool) -> Result<(), String> {
        let mut chain = self.fixture.start::<B>(spec)?;
        for (index, block) in self.fixture.blocks.iter().enumerate() {
            let list = block.access_list();
            let given = list.as_deref().filter(|_| with_lists);
            let imported = match block.rlp.parse::<Bytes>() {
                Ok(rlp) => chain.import(&rlp, given),
                Err(error) => Err(error.to_string()),
            };
            match (imported, &block.expect_exception) {
                (Ok(()), None) => {
                    if let Some(list) = list
                        && chain.access_list() != list
                    {
                        return Err(format!("block {index} has another access list"));
                    }
                }
                (Err(error), Some(reason)) => {
                    refusals::compare(self.pack, given.is_some(), reason, &error)
                        .map_err(|why| format!("block {index} {why}"))?;
                }
                (Ok(()), Some(fault)) => {
                    return Err(format!("block {index} is imported in spite of {fault}"));
                }
                (Err(error), None) => return Err(format!("block {index} is refused: {error}")),
            }
        }
        self.check_end(&chain)
    }

    fn check_end(&self, chain: &B) -> Result<(), String> {
        let (got, wanted) = (chain.head(), self.fixture.lastblockhash);
        if got != wanted {
            return Err(format!("the head is {got}, not {wanted}"));
        }
        if let Some(wanted) = self.fixture.post_state_hash
            && chain.state_root() != wanted
        {
            return Err(format!(
                "the state's root is {}, not {wanted}",
                chain.state_root()
            ));
        }
        for (address, wanted) in self.fixture.post_state.iter().flatten() {
            let (got, wanted_account) = (chain.account(*address), Some(plain(wanted)));
            if got != wanted_account {
                return Err(format!("{address} is {got:?}, not {wanted_account:?}"));
            }
            for (slot, wanted) in &wanted.storage {
                let got = chain.slot(*address, *slot);
                if got != *wanted {
                    return Err(format!("slot {slot} of {address} is {got}, not {wanted}"));
                }
            }
        }
        Ok(())
    }
}

impl<B: Backend> Case for BlockchainCase<B> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(&self) -> Verdict {
        let Some(spec) = self.spec() else {
            return Verdict::Skipped(format!("network {} is not known", self.fixture.network));
        };
        // Without its list, a block with a wrong list is rejected by the hash only. So both are
        // tested.
        let lists = self
            .fixture
            .blocks
            .iter()
            .any(|b| b.access_list().is_some());
        let mut done = self.check(spec.clone(), false);
        if lists {
            done = done.and_then(|()| self.check(spec, true));
        }
        match done {
            Ok(()) => Verdict::Passed,
            Err(why) => Verdict::Failed(why),
        }
    }
}

/// The blockchain tests in one folder of a pack, on a backend.
pub struct BlockchainSuite<B> {
    pack: Pack,
    root: PathBuf,
    folder: &'static str,
    backend: PhantomData<fn() -> B>,
}

impl<B> BlockchainSuite<B> {
    /// Returns all tests under `folder` of `pack`, or `None` if the folder is missing.
    pub fn new(pack: Pack, folder: &'static str) -> Option<Self> {
        Some(Self {
            pack,
            root: pack.open(&[folder])?,
            folder,
            backend: PhantomData,
        })
    }
}

/// Start of a Git LFS pointer, which stands in a repository for a file stored elsewhere.
const GIT_LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/";

impl<B: Backend> Suite for BlockchainSuite<B> {
    type Case = BlockchainCase<B>;

    fn name(&self) -> String {
        format!("{} over the {}", self.folder, B::name())
    }

    fn files(&self) -> Vec<PathBuf> {
        let hidden = |path: &PathBuf| path.iter().any(|part| part == ".meta");
        let mut files = json_files(&self.root.join(self.folder));
        files.retain(|path| !hidden(path));
        files
    }

    fn cases(&self, file: &Path) -> Result<Vec<Self::Case>, String> {
        let bytes = fs::read(file).map_err(|error| error.to_string())?;
        if bytes.starts_with(GIT_LFS_POINTER) {
            return Err("the pack has only a Git LFS pointer to this file".to_owned());
        }
        let fixtures: BTreeMap<String, Fixture> = serde_json::from_slice(&bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let cases = fixtures.into_iter().map(|(name, fixture)| BlockchainCase {
            name,
            pack: self.pack,
            fixture,
            backend: PhantomData,
        });
        Ok(cases.collect())
    }
}
