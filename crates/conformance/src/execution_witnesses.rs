//! Fixtures of blocks with witnesses (EIP-8025's `executionWitness`). Each block is executed from
//! its witness alone, and the witness is compared with the one that the engine builds for the
//! block.

use crate::{
    Case, Pack, Suite, Verdict,
    blockchain_test::{Fixture, FixtureBlock},
    json_files,
};
use alloy_consensus::Header;
use alloy_primitives::{Bytes, hex};
use alloy_rlp::Decodable;
use cambium_chain::{
    BlockWitness, ChainSpec, StatelessError, StatelessReport, StatelessRules, Strictness,
    WitnessGap,
};
use cambium_testkit::{Backend, EngineChain};
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
    /// Number of witnesses with other headers whose verdict is that of the EIP.
    pub changed: AtomicUsize,
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
        let changed = check_changed_headers(&given, spec)?;
        self.counts.changed.fetch_add(changed, Ordering::Relaxed);
        let own = engine.chain().witness(engine.chain().db().head().number);
        let own = own.map_err(|error| error.to_string())?;
        compare(&own, &given)?;
        self.counts.equal.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Executes a block from its witness with other headers, with which the EIP's verifiers refuse it, or accept it
/// and have headers that they don't need. The headers of `given` are as few as possible. Returns the number
/// of such witnesses.
fn check_changed_headers(given: &BlockWitness, spec: &ChainSpec) -> Result<usize, String> {
    let rules = StatelessRules::of(spec);
    let sound = StatelessRules {
        strictness: Strictness::Sound,
        ..rules
    };
    let headers = &given.witness.headers;
    let count = headers.len();
    let parent = headers.last().ok_or("it has no headers")?;
    let header = Header::decode(&mut &parent[..]).map_err(|error| error.to_string())?;
    let other = Bytes::from(alloy_rlp::encode(Header {
        gas_used: header.gas_used ^ 1,
        ..header
    }));
    let reversed: Vec<Bytes> = headers.iter().rev().cloned().collect();
    let with = |at: usize, added: Bytes| {
        let mut headers = headers.clone();
        headers.insert(at, added);
        headers
    };
    let garbage = Bytes::from_static(&[0xff]);
    let long = Bytes::from(vec![0x80; 1025]);
    type Is = fn(&StatelessError) -> bool;
    let is_order: Is = |error| matches!(error, StatelessError::HeaderOrder { .. });
    let no_parent: Is = |error| matches!(error, StatelessError::NoParent(_));
    let is_garbage: Is = |error| matches!(error, StatelessError::Header { .. });
    let mut refused: Vec<(&str, Vec<Bytes>, Is)> = vec![
        (
            "the parent is missing",
            headers[..count - 1].to_vec(),
            no_parent,
        ),
        ("there are none", vec![], no_parent),
        (
            "another in place of the parent",
            with(count, other.clone())[1..].to_vec(),
            |error| {
                matches!(
                    error,
                    StatelessError::NoParent(_) | StatelessError::HeaderOrder { .. }
                )
            },
        ),
        ("another behind the parent", with(count, other), is_order),
        ("the parent twice", with(count, parent.clone()), is_order),
        ("one is malformed", with(0, garbage), is_garbage),
        ("one is too long", with(0, long), |error| {
            matches!(
                error,
                StatelessError::TooLong {
                    what: "header",
                    index: 0,
                    ..
                }
            )
        }),
        ("there are too many", vec![parent.clone(); 257], |error| {
            matches!(error, StatelessError::TooManyHeaders { count: 257 })
        }),
    ];
    if count > 1 {
        refused.extend([
            ("they are reversed", reversed, is_order),
            ("the oldest is missing", headers[1..].to_vec(), |error| {
                matches!(error, StatelessError::Lacks(WitnessGap::Header(_)))
            }),
            (
                "one in the middle is missing",
                [&headers[..count - 2], &headers[count - 1..]].concat(),
                |error| {
                    matches!(
                        error,
                        StatelessError::HeaderOrder { .. }
                            | StatelessError::Lacks(WitnessGap::Header(_))
                    )
                },
            ),
        ]);
    }
    let tried = refused.len();
    for (name, headers, is_expected) in refused {
        let mut changed = given.clone();
        changed.witness.headers = headers;
        match changed.execute(&rules) {
            Err(error) if is_expected(&error) => {}
            Err(error) => return Err(format!("{name}: {error}")),
            Ok(_) => return Err(format!("{name}: it executes")),
        }
        // Sound all the same, if an order alone is wrong.
        if name == "they are reversed" || name == "the parent twice" {
            let report = changed
                .execute(&sound)
                .map_err(|error| format!("{name}: {error}"))?;
            let unused = changed.witness.headers.len() - count;
            if report.unused_headers != unused {
                return Err(format!(
                    "{name}: {} headers are unused",
                    report.unused_headers
                ));
            }
        }
    }
    let mut more = given.clone();
    let extra = Bytes::from_static(b"not needed");
    more.witness.codes.insert(0, extra.clone());
    more.witness.state.insert(0, extra);
    let report = more
        .execute(&rules)
        .map_err(|error| format!("with more than it needs: {error}"))?;
    let plain = given.execute(&rules).map_err(|error| error.to_string())?;
    let unused = |report: &StatelessReport| {
        (
            report.unused_nodes,
            report.unused_codes,
            report.unused_headers,
        )
    };
    match (unused(&plain), unused(&report)) {
        ((nodes, codes, 0), (with_one, with_another, 0))
            if (with_one, with_another) == (nodes + 1, codes + 1) =>
        {
            Ok(tried + 1)
        }
        counts => Err(format!("unused nodes, codes, headers: {counts:?}")),
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
