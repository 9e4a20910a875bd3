//! Cases of the execution-apis suite for `eth_getProof`: requests with their responses.

use crate::{Case, Pack, Suite, Verdict, import_execution_apis_chain};
use alloy_primitives::{Address, B256, U64, keccak256};
use cambium_primitives::BlockId;
use cambium_state::{StateError, View};
use cambium_testkit::EngineChain;
use cambium_trie::{NoResolve, ProofTargets, StorageKey, verify_account_proof};
use serde::Deserialize;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Cases for the engine, at the head of the suite's chain.
pub struct ProofCases {
    folder: PathBuf,
    chain: Arc<EngineChain>,
}

impl ProofCases {
    /// Returns all cases, or `None` if the pack is missing.
    pub fn new() -> Option<Self> {
        let folder = Pack::ExecutionApis.open(&["execution-apis"])?;
        let folder = folder.join("execution-apis/tests/eth_getProof");
        let chain = Arc::new(import_execution_apis_chain::<EngineChain>()?);
        Some(Self { folder, chain })
    }
}

impl Suite for ProofCases {
    type Case = ProofCase;

    fn name(&self) -> String {
        "execution-apis eth_getProof over the state engine".to_owned()
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "io"));
        files.sort();
        files
    }

    fn cases(&self, file: &Path) -> Result<Vec<ProofCase>, String> {
        let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let mut cases = Vec::new();
        let mut request = None;
        for line in text.lines() {
            if let Some(json) = line.strip_prefix(">> ") {
                request = Some(serde_json::from_str(json).map_err(|error| error.to_string())?);
            } else if let Some(json) = line.strip_prefix("<< ") {
                cases.push(ProofCase {
                    name: name.clone().into_owned(),
                    request: request.take().ok_or("a response without a request")?,
                    response: serde_json::from_str(json).map_err(|error| error.to_string())?,
                    chain: self.chain.clone(),
                });
            }
        }
        Ok(cases)
    }
}

/// A request with its expected response.
pub struct ProofCase {
    name: String,
    request: Value,
    response: Value,
    chain: Arc<EngineChain>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum At {
    Hash(B256),
    Number(U64),
    Tag(String),
}

impl Case for ProofCase {
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

impl ProofCase {
    fn check(&self) -> Result<(), String> {
        let param = |at: usize| self.request["params"].get(at).cloned();
        let parse = |error: serde_json::Error| error.to_string();
        let address = param(0).unwrap_or_default();
        let address: Address = serde_json::from_value(address).map_err(parse)?;
        let slots = param(1).unwrap_or_default();
        let slots: Vec<StorageKey> = serde_json::from_value(slots).map_err(parse)?;
        let at = param(2).map(serde_json::from_value).transpose();
        let view = self.view(at.map_err(parse)?)?;

        let paths = slots.iter().map(|key| keccak256(key.slot)).collect();
        let keys = ProofTargets::new(vec![(keccak256(address), paths)]);
        let mut part = view.extract(&keys).map_err(|error| error.to_string())?;
        if part.state_root() != Some(view.state_root()) {
            return Err("what is extracted has another root".to_owned());
        }
        let proof = part
            .prove_account(address, &slots, &mut NoResolve)
            .map_err(|error| error.to_string())?;
        verify_account_proof(view.state_root(), &proof).map_err(|error| error.to_string())?;
        let (got, wanted) = (serde_json::to_value(&proof), &self.response["result"]);
        let got = got.map_err(parse)?;
        if got != *wanted {
            return Err(format!("the proof is {got}, not {wanted}"));
        }
        Ok(())
    }

    /// Finds a block by its hash, even if it is so old that the engine does not know its hash.
    fn find(&self, hash: &B256) -> Result<Option<BlockId>, StateError> {
        let db = self.chain.chain().db();
        for number in 0..=db.head().number {
            let id = db.block_id(number)?;
            if let Some(id) = id.filter(|id| id.hash == *hash) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    fn view(&self, at: Option<At>) -> Result<View, String> {
        let db = self.chain.chain().db();
        let view: Result<View, StateError> = match at {
            None => db.view(),
            Some(At::Hash(hash)) => {
                let id = self.find(&hash).map_err(|error| error.to_string())?;
                id.map_or(Err(StateError::UnknownBlock(hash)), |id| db.view_of(id))
            }
            Some(At::Number(number)) => db.view_at(number.to()),
            Some(At::Tag(tag)) if tag == "earliest" => db.view_at(0),
            Some(At::Tag(tag)) if ["latest", "safe", "finalized"].contains(&&*tag) => db.view(),
            Some(At::Tag(tag)) => return Err(format!("a block called {tag}")),
        };
        view.map_err(|error| error.to_string())
    }
}
