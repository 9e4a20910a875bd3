//! Fixtures of blocks with witnesses (EIP-8025's `executionWitness`). Each block is executed from
//! its witness alone, and the witness is compared with the one that the engine builds for the
//! block.

use crate::{
    Backend, Case, EngineChain, Pack, Suite, Verdict,
    blockchain_test::{Fixture, FixtureBlock},
    json_files,
};
use alloy_primitives::{Bytes, hex};
use cambium_chain::{BlockWitness, ChainSpec, StatelessRules};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

/// Offset of the byte that says whether the block is proven, in the output of a guest program.
const IS_PROVEN: usize = 32;

/// Counts over all cases.
#[derive(Debug, Default)]
pub struct WitnessCounts {
    /// Number of blocks that execute from their witness.
    pub proven: AtomicUsize,
    /// Number of blocks that fail to execute, as the fixture expects.
    pub refused: AtomicUsize,
    /// Number of witnesses that equal the engine's own, node by node.
    pub equal: AtomicUsize,
}

/// A chain of blocks with witnesses.
pub struct ExecutionWitnessCase<'a> {
    name: String,
    fixture: Fixture,
    counts: &'a WitnessCounts,
}

impl ExecutionWitnessCase<'_> {
    fn check(&self, spec: &ChainSpec) -> Result<(), String> {
        let mut chain = self.fixture.start::<EngineChain>(spec.clone())?;
        for (index, block) in self.fixture.blocks.iter().enumerate() {
            let name = |error| format!("block {index}: {error}");
            self.check_block(&mut chain, spec, block).map_err(name)?;
        }
        Ok(())
    }

    fn check_block(
        &self,
        engine: &mut EngineChain,
        spec: &ChainSpec,
        block: &FixtureBlock,
    ) -> Result<(), String> {
        let rlp: Bytes = block.rlp.parse().map_err(|error| format!("{error}"))?;
        let imported = engine.import(&rlp, None);
        let given = block.execution_witness.as_ref();
        let output = block.stateless_output_bytes.as_ref();
        let (Some(given), Some(output)) = (given, output) else {
            return imported;
        };
        let is_proven = output.get(IS_PROVEN) == Some(&1);
        let witness = BlockWitness::from_json(&given.to_string(), Some(rlp));
        let executed = witness
            .map_err(|error| error.to_string())
            .and_then(|witness| {
                let executed = witness.execute(&StatelessRules::of(spec));
                executed.map_err(|error| error.to_string())?;
                Ok(witness)
            });
        let given = match (executed, is_proven) {
            (Ok(given), true) => given,
            (Err(_), false) => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                return imported;
            }
            (Ok(_), false) => return Err("it executes from a witness that lacks something".into()),
            (Err(error), true) => return Err(format!("it does not execute: {error}")),
        };
        self.counts.proven.fetch_add(1, Ordering::Relaxed);
        imported?;
        let own = engine.chain().witness(engine.chain().db().head().number);
        let own = own.map_err(|error| error.to_string())?;
        compare(&own, &given)?;
        self.counts.equal.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Compares nodes, codes and headers as sets.
fn compare(own: &BlockWitness, given: &BlockWitness) -> Result<(), String> {
    let (own, given) = (&own.witness, &given.witness);
    let parts = [
        ("state", &own.state, &given.state),
        ("codes", &own.codes, &given.codes),
        ("headers", &own.headers, &given.headers),
    ];
    let differences = parts.into_iter().filter_map(|(what, own, given)| {
        let own: BTreeSet<_> = own.iter().collect();
        let given: BTreeSet<_> = given.iter().collect();
        let list = |set: BTreeSet<&Bytes>, other: &BTreeSet<&Bytes>| {
            let only = set.difference(other).map(|bytes| short(bytes));
            only.collect::<Vec<_>>().join(" ")
        };
        (own != given).then(|| {
            format!(
                "{what}: the engine alone has [{}], the fixture alone [{}]",
                list(own.clone(), &given),
                list(given.clone(), &own)
            )
        })
    });
    let differences: Vec<_> = differences.collect();
    match differences.is_empty() {
        true => Ok(()),
        false => Err(differences.join("; ")),
    }
}

fn short(bytes: &[u8]) -> String {
    hex::encode(&bytes[..bytes.len().min(24)])
}

impl Case for ExecutionWitnessCase<'_> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(&self) -> Verdict {
        let Some(spec) = self.fixture.spec(Pack::AmsterdamDevnet) else {
            return Verdict::Skipped(format!("network {} is not known", self.fixture.network));
        };
        match self.check(&spec) {
            Ok(()) => Verdict::Passed,
            Err(why) => Verdict::Failed(why),
        }
    }
}

/// All cases of the pack with witnesses.
pub struct ExecutionWitnesses<'a> {
    folder: PathBuf,
    counts: &'a WitnessCounts,
}

impl<'a> ExecutionWitnesses<'a> {
    /// Returns the cases, or `None` if the pack is missing.
    pub fn new(counts: &'a WitnessCounts) -> Option<Self> {
        let folder = Pack::AmsterdamDevnet
            .open(&["eest-zkevm-witness"])?
            .join("eest-zkevm-witness");
        Some(Self { folder, counts })
    }
}

impl<'a> Suite for ExecutionWitnesses<'a> {
    type Case = ExecutionWitnessCase<'a>;

    fn name(&self) -> String {
        "eest-zkevm-witness from witnesses".to_owned()
    }

    fn files(&self) -> Vec<PathBuf> {
        json_files(&self.folder)
    }

    fn cases(&self, file: &Path) -> Result<Vec<Self::Case>, String> {
        let bytes = fs::read(file).map_err(|error| error.to_string())?;
        let fixtures: BTreeMap<String, Fixture> = serde_json::from_slice(&bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let counts = self.counts;
        let cases = fixtures.into_iter();
        let cases = cases.map(|(name, fixture)| ExecutionWitnessCase {
            name,
            fixture,
            counts,
        });
        Ok(cases.collect())
    }
}
