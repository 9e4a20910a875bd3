//! Genesis files of public chains: the engine loads them, from the file and from alloy's form of it, the hashes and
//! state roots are compared with the known ones, and the new database is checked and opened again.

use crate::{Case, Pack, Suite, Verdict, json_files};
use alloy_primitives::{B256, b256};
use cambium_chain::Chain;
use cambium_state::{FaultyDisk, Options};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The known hash, state root and number of accounts of a genesis block. The `stateRoot` in a file
/// is ignored; that of `dev.json` is not the root of its accounts.
type Known = (Option<B256>, Option<B256>, Option<u64>);

/// The genesis files of pack 01.
pub struct GenesisFiles {
    folder: PathBuf,
}

impl GenesisFiles {
    /// Returns all files, or `None` if the pack is missing.
    pub fn new() -> Option<Self> {
        let folder = Pack::TrieGenesisEra.open(&["reth"])?;
        let folder = folder.join("reth/crates/chainspec/res/genesis");
        Some(Self { folder })
    }
}

impl Suite for GenesisFiles {
    type Case = GenesisFile;

    fn name(&self) -> String {
        "genesis files through the engine's loader".to_owned()
    }

    fn files(&self) -> Vec<PathBuf> {
        json_files(&self.folder)
    }

    fn cases(&self, file: &Path) -> Result<Vec<GenesisFile>, String> {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        Ok(vec![GenesisFile {
            name: name.into_owned(),
            path: file.to_path_buf(),
        }])
    }
}

/// One genesis file.
pub struct GenesisFile {
    name: String,
    path: PathBuf,
}

impl Case for GenesisFile {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(&self) -> Verdict {
        match self.check() {
            Ok(()) => Verdict::Passed,
            Err(why) => Verdict::Failed(why),
        }
    }
}

impl GenesisFile {
    fn check(&self) -> Result<(), String> {
        let text = fs::read(&self.path).map_err(|error| error.to_string())?;
        let mut json: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        let (hash, root, accounts) = known(&self.name);
        if hash.is_none() {
            return Err("nothing is known of this chain to compare with".to_owned());
        }
        let allocated = json["alloc"]
            .as_object()
            .map_or(0, |alloc| alloc.len() as u64);

        // Two files have no `config`. A copy gets the fork rules under which the header has the
        // known hash.
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut path = self.path.clone();
        if let Some(config) = config(&self.name) {
            let refused = Chain::init(
                Arc::new(FaultyDisk::new(1)),
                &path,
                Options::default(),
                &mut |_| {},
            );
            let why = refused.err().ok_or("taken without a config")?.to_string();
            if !why.contains("has no `config`") {
                return Err(format!("refused, but as: {why}"));
            }
            let refused = in_memory(&json)?.err();
            let why = refused.ok_or("taken from memory without a config")?;
            if !why.contains("has no `config`") {
                return Err(format!("refused from memory, but as: {why}"));
            }
            json["config"] = config;
            path = folder.path().join("genesis.json");
            fs::write(&path, json.to_string()).map_err(|error| error.to_string())?;
        }

        let disk = Arc::new(FaultyDisk::new(1));
        let chain = Chain::init(disk.clone(), &path, Options::default(), &mut |_| {});
        let made = self.compare(&chain.map_err(|error| error.to_string())?, allocated)?;
        if self.compare(&in_memory(&json)??, allocated)? != made {
            return Err("another genesis by way of alloy's".to_owned());
        }
        let opened = Chain::open(disk, Options::default());
        let (chain, _) = opened.map_err(|error| error.to_string())?;
        if self.compare(&chain, allocated)? != made {
            return Err("another genesis after it is opened again".to_owned());
        }
        chain
            .check_genesis_file(&path, &mut |_| {})
            .map_err(|error| error.to_string())?;
        let wanted = (
            hash.unwrap_or(made.0),
            root.unwrap_or(made.1),
            accounts.unwrap_or(made.2),
        );
        if made != wanted {
            return Err(format!(
                "hash, root and accounts are {made:?}, not {wanted:?}"
            ));
        }
        Ok(())
    }

    /// Checks a database, and returns the hash, state root and number of accounts of its genesis.
    fn compare(&self, chain: &Chain, allocated: u64) -> Result<(B256, B256, u64), String> {
        let db = chain.db();
        let report = db.check(&mut |_| {}).map_err(|error| error.to_string())?;
        if !report.damage.is_empty() {
            return Err(format!("damage: {:?}", report.damage));
        }
        if report.accounts != allocated {
            return Err(format!(
                "{} accounts, the file has {allocated}",
                report.accounts
            ));
        }
        let view = db.view().map_err(|error| error.to_string())?;
        let header = chain.block(0).map_err(|error| error.to_string())?.header;
        let (hash, root) = (header.hash_slow(), view.state_root());
        if (db.genesis().hash, header.state_root) != (hash, root) {
            return Err("the genesis block is not that of the state".to_owned());
        }
        Ok((hash, root, report.accounts))
    }
}

/// Makes a database of alloy's form of a genesis file.
fn in_memory(json: &Value) -> Result<Result<Chain, String>, String> {
    let genesis = serde_json::from_value::<alloy_genesis::Genesis>(json.clone());
    let genesis = genesis.map_err(|error| format!("not read by alloy: {error}"))?;
    let disk = Arc::new(FaultyDisk::new(1));
    let chain = Chain::init_genesis(disk, &genesis, Options::default(), &mut |_| {});
    Ok(chain.map_err(|error| error.to_string()))
}

fn known(name: &str) -> Known {
    let hash = match name {
        "mainnet" => b256!("d4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3"),
        "sepolia" => b256!("25a5cc106eea7138acab33231d7160d69cb777ee0c2c553fcddf5138993e6dd9"),
        "holesky" => b256!("b5f7f912443c940f21fd611f12828d75b534364ed9e95ca4e307729a4661bde4"),
        "hoodi" => b256!("bbe312868b376a3001692a646dd2d7d1e4406380dfd86b98aa8a34d1557c971b"),
        "goerli" => b256!("bf7e331f7f7c1dd2e05159666b3bf8bc7a8a3a9eb1d518969eab529dd9b88c1a"),
        "dev" => b256!("2f980576711e3617a5e4d83dd539548ec0f7792007d505a3d2e9674833af2d7c"),
        _ => return (None, None, None),
    };
    let root = b256!("d7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544");
    match name {
        "mainnet" => (Some(hash), Some(root), Some(8893)),
        _ => (Some(hash), None, None),
    }
}

fn config(name: &str) -> Option<Value> {
    match name {
        "goerli" => Some(json!({"chainId": 5, "londonBlock": 5_062_605})),
        "dev" => Some(json!({
            "chainId": 1337, "londonBlock": 0, "terminalTotalDifficulty": 0, "shanghaiTime": 0,
        })),
        _ => None,
    }
}
