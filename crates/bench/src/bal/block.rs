//! A generated block with every input that executors can take, and the chain on which it is
//! executed.

use alloy_primitives::{Address, B256, keccak256};
use cambium_chain::{AccessListSizes, Block, BlockExecutor, Chain, DryRun, ExecutorKind};
use cambium_evm::{Hooks, Outcome, recover_senders};
use cambium_primitives::{AccessList, Changes, PreStateValues};
use cambium_state::{Options, StateError, StdDisk, View};
use cambium_workload::{BlockSealer, Workload, WorkloadParams};
use std::{
    convert::Infallible,
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// A block on a genesis state.
pub(crate) struct BalBlock {
    pub(crate) block: Block,
    pub(crate) senders: Vec<Address>,
    pub(crate) given: Given,
    /// Outcome of sequential execution.
    pub(crate) expected: Outcome,
}

/// A block's access list in every form that executors take.
pub(crate) struct Given {
    pub(crate) list: AccessList,
    /// The list without keys that are only read.
    pub(crate) changes: AccessList,
    pub(crate) found: PreStateValues,
    pub(crate) sizes: AccessListSizes,
}

impl Given {
    /// Builds all forms of a list. `view` is the pre-state of the block.
    pub(crate) fn new(list: AccessList, view: &View) -> Result<Self, StateError> {
        Ok(Self {
            changes: list.changes_only(),
            found: found_by(&list, view)?,
            sizes: AccessListSizes::measure(&list, view)?,
            list,
        })
    }

    /// Returns the list that an executor of this kind is given. The sizes in the report are those
    /// of the same list.
    pub(crate) const fn list_for(&self, kind: ExecutorKind) -> &AccessList {
        match kind {
            ExecutorKind::Parallel => &self.changes,
            _ => &self.list,
        }
    }
}

/// Result of an execution.
pub(crate) struct Executed {
    pub(crate) outcome: Outcome,
    pub(crate) elapsed: Duration,
}

/// Result of computing a state root.
pub(crate) struct Rooted {
    pub(crate) root: B256,
    /// Time of the root alone, or of the root and the execution that runs at the same time.
    pub(crate) elapsed: Duration,
}

/// Creates the genesis state in `dir`, unless it exists.
pub(crate) fn state_in(dir: &Path, workload: &Workload) -> Result<(), Box<dyn Error>> {
    let done = dir.with_extension("done");
    if done.exists() {
        return Ok(());
    }
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    eprintln!("making {} (once)", dir.display());
    let options = Options {
        memory_bytes: 2 << 30,
        ..Options::default()
    };
    let disk = Arc::new(StdDisk::new(dir));
    drop(workload.init(disk, options, &mut |_| {})?);
    fs::write(done, "")?;
    Ok(())
}

/// Returns the directory of the state of such a workload.
pub(crate) fn dir_of(data: &Path, params: &WorkloadParams) -> PathBuf {
    data.join(format!(
        "state-{}-{}-{}-{}-{}",
        params.accounts,
        params.senders(),
        params.holders(),
        if params.swap_percent > 0 {
            params.pools
        } else {
            0
        },
        if params.slot_read_percent > 0 {
            params.slots
        } else {
            0
        },
    ))
}

/// A sealer that returns drafts unchanged, because the missing header fields are not used.
struct Drafts;

impl BlockSealer for Drafts {
    type Error = Infallible;

    fn seal(&mut self, draft: Block) -> Result<Block, Infallible> {
        Ok(draft)
    }
}

impl BalBlock {
    /// Executes the first block of a workload sequentially, on the genesis state of `chain`.
    pub(crate) fn first(chain: &Chain, workload: &Workload) -> Result<Self, Box<dyn Error>> {
        let genesis = chain.block(0)?.header;
        let mut first = None;
        workload
            .generate(&genesis, &mut Drafts, |block| {
                first.get_or_insert_with(|| block.clone());
                Ok(())
            })
            .unwrap_or_else(|never| match never {});
        let block = first.ok_or("a workload without blocks")?;
        let senders = recover_senders(&block.body.transactions, true)?;
        let run = DryRun {
            block: &block,
            post_merge: true,
            senders: &senders,
            access_list: None,
            pre_state: None,
        };
        let view = chain.db().view()?;
        let executor = BlockExecutor::new(ExecutorKind::Sequential);
        let expected = chain.dry_run(run, view.clone(), &executor, Hooks::default())?;
        let list = expected.access_list.clone().ok_or("no access list")?;
        Ok(Self {
            block,
            senders,
            given: Given::new(list, &view)?,
            expected,
        })
    }

    pub(crate) fn transactions(&self) -> usize {
        self.block.body.transactions.len()
    }

    pub(crate) fn gas(&self) -> u64 {
        self.expected.gas_used
    }

    pub(crate) const fn sizes(&self) -> &AccessListSizes {
        &self.given.sizes
    }

    /// Executes the block on the genesis state, with the list for this kind of executor.
    pub(crate) fn execute(
        &self,
        chain: &Chain,
        executor: &BlockExecutor,
        hooks: Hooks<'_, StateError>,
    ) -> Result<Executed, Box<dyn Error>> {
        let view = chain.db().view()?;
        let run = DryRun {
            block: &self.block,
            post_merge: true,
            senders: &self.senders,
            access_list: Some(self.given.list_for(executor.kind)),
            pre_state: Some(&self.given.found),
        };
        let start = Instant::now();
        let outcome = chain.dry_run(run, view, executor, hooks)?;
        let elapsed = start.elapsed();
        Ok(Executed { outcome, elapsed })
    }

    /// Computes the state root after the block, following its execution.
    pub(crate) fn root(&self, chain: &Chain) -> Result<Rooted, Box<dyn Error>> {
        let session = chain.db().view()?.session();
        let (changes, codes) = (self.expected.changes.clone(), self.expected.codes.clone());
        let start = Instant::now();
        let root = session.finish(changes, codes)?.root();
        let elapsed = start.elapsed();
        Ok(Rooted { root, elapsed })
    }

    /// Executes the block, and computes its state root at the same time from the claimed changes.
    pub(crate) fn execute_with_root(
        &self,
        chain: &Chain,
        executor: &BlockExecutor,
    ) -> Result<Rooted, Box<dyn Error>> {
        let mut session = Some(chain.db().view()?.session());
        let mut staged = None;
        let mut claimed = |changes: &Changes, codes: &[_]| {
            if let Some(session) = session.take() {
                staged = Some(session.finish(changes.clone(), codes.to_vec()));
            }
        };
        let hooks = Hooks {
            claimed: Some(&mut claimed),
            ..Hooks::default()
        };
        let elapsed = self.execute(chain, executor, hooks)?.elapsed;
        let root = staged.ok_or("the executor claimed no changes")??.root();
        Ok(Rooted { root, elapsed })
    }

    /// Returns whether an outcome equals that of sequential execution.
    pub(crate) fn is_expected(&self, outcome: &Outcome) -> bool {
        *outcome == self.expected
    }
}

fn found_by(list: &AccessList, view: &View) -> Result<PreStateValues, StateError> {
    PreStateValues::read(
        list,
        |address| view.account(&keccak256(address)),
        |address, slot| view.slot(&keccak256(address), &keccak256(slot.to_be_bytes::<32>())),
    )
}
