//! Building blocks from submissions, on a pruned trie.
//!
//! A submission's bag was made on an older state. The builder *revises* it: it walks its own trie, at its head. Where that has a
//! node, the node counts; at a blinded node it takes the bag's node with that hash. Nothing is checked against the root
//! that the bag was made for. Where neither has the node, the path is incomplete: the builder fetches it, or leaves the transaction out.

use crate::{
    bag::NodeBag,
    helpers::each,
    reader::{Reader, ReaderError},
    submission::{Submission, targets_of_list},
    top::top_nodes,
    update::{BlockUpdate, body_of},
};
use alloy_consensus::{BlockBody, Header};
use alloy_primitives::{Address, B256, keccak256};
use alloy_rlp::Encodable;
use cambium_chain::{
    Block, BlockWitness, ChainSpec, DryRun, DryRunError, Outcome, WitnessForm, complete_header,
    keep_transactions,
};
use cambium_crew::threads;
use cambium_evm::{
    BlockExecutor, Chosen, ExecutionError, ExecutorKind, Hooks, SignatureError, recover_senders,
};
use cambium_primitives::{AccessList, BlockId, BlockNumber};
use cambium_trie::{BagNodes, Deletes, HashedNodes, NodesByHash, ProofTargets, Witness};
use std::{
    num::NonZeroUsize,
    sync::OnceLock,
    time::{Duration, Instant},
};

/// Submissions whose nodes a thread hashes at once: 50 to 100 us of work.
const SUBMISSIONS_AT_ONCE: usize = 16;
/// How often a block is executed on several threads, each time with what was missing before.
const ROUNDS_MAX: usize = 3;

/// What a builder does about a path that is incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Incomplete {
    /// It reads what is missing from the shards.
    #[default]
    Fetch,
    /// It leaves the transaction out. What the block reads besides its transactions it fetches all the same.
    Reject,
}

/// Why no block is built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The state can't be read.
    #[error(transparent)]
    Reader(#[from] ReaderError),
    /// A step of the block fails that is not a transaction.
    #[error("block {id}: {reason}")]
    Block {
        /// The draft.
        id: BlockId,
        /// What fails.
        reason: String,
    },
    /// The draft is not a child of the builder's head.
    #[error("the draft is block {number} on {parent}, and the builder is at {head}")]
    OtherParent {
        /// The draft's number.
        number: BlockNumber,
        /// Hash of the draft's parent.
        parent: B256,
        /// The builder's head.
        head: BlockId,
    },
}

/// Why a submission is not in a block.
#[derive(Debug, thiserror::Error)]
pub enum LeftOut {
    /// Its signature is invalid.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The builder's head has nodes on its paths that neither the builder nor the bag has.
    #[error("the bag was made on block {ran_on}, and lacks nodes on {paths} of its paths")]
    Stale {
        /// The block that it ran on.
        ran_on: BlockId,
        /// Number of accounts and slots.
        paths: usize,
    },
    /// It can't be executed after those before it.
    #[error(transparent)]
    Execution(#[from] Box<ExecutionError<ReaderError>>),
}

/// A block, with all that others need of it.
#[derive(Debug)]
pub struct Built {
    /// The block.
    pub block: Block,
    /// Number and hash.
    pub id: BlockId,
    /// What it tells the shards.
    pub update: BlockUpdate,
    /// Its access list.
    pub access_list: Option<AccessList>,
    /// What executing it again needs, of its parent's state.
    pub bag: NodeBag,
    /// Outcome of its execution, without what `update` and `access_list` have.
    pub gas_used: u64,
    /// Submissions that are not in it, by their numbers, with the reasons.
    pub left_out: Vec<(usize, LeftOut)>,
    /// Number of bags that were made on another block than the builder's head, and revised.
    pub revised: usize,
    /// Number of accounts and slots on whose paths neither the builder nor the bags had all nodes: they were read from the shards.
    pub fetched: usize,
    /// How long its making took.
    pub timings: BuildTimings,
}

/// Time that the making of a block took, by its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildTimings {
    /// Recovering senders from signatures.
    pub senders: Duration,
    /// Hashing the nodes of bags, and taking those that are on the builder's paths.
    pub revise: Duration,
    /// Execution.
    pub execute: Duration,
    /// The bag for verifiers.
    pub witness: Duration,
    /// State root, header and pruning.
    pub finish: Duration,
}

/// Builds blocks on a pruned trie.
#[derive(Debug)]
pub struct Builder {
    reader: Reader,
    spec: ChainSpec,
    incomplete: Incomplete,
    /// Depth of the shards' roots.
    shard_depth: usize,
}

impl LeftOut {
    /// The names of all reasons.
    pub const NAMES: [&'static str; 3] = ["signature", "stale", "execution"];

    /// Name of the reason, for counters.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Signature(_) => "signature",
            Self::Stale { .. } => "stale",
            Self::Execution(_) => "execution",
        }
    }
}

impl Builder {
    /// A builder at the block of `reader`, for shards whose roots are at this depth. The reader keeps all nodes above them.
    pub fn new(
        reader: Reader,
        spec: ChainSpec,
        shard_depth: usize,
        incomplete: Incomplete,
    ) -> Self {
        let threads = NonZeroUsize::new(threads()).unwrap_or(NonZeroUsize::MIN);
        let builder = Self {
            reader: reader.keeping(shard_depth as u8),
            spec,
            incomplete,
            shard_depth,
        };
        builder.with_threads(threads)
    }

    /// Sets the number of threads that make a block, except for its signatures: as many as processors unless set.
    #[must_use]
    pub fn with_threads(mut self, threads: NonZeroUsize) -> Self {
        self.reader.set_threads(threads);
        self
    }

    /// The state at its head.
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Builds a block of submissions in their order, and moves on to it. `draft` has the header and the withdrawals: what
    /// follows from transactions and execution is filled in.
    ///
    /// # Errors
    ///
    /// If no block can be built. The builder stays at its head.
    pub fn build(
        &mut self,
        mut draft: Block,
        submissions: &[Submission],
    ) -> Result<Built, BuildError> {
        let head = self.reader.block();
        let (number, parent) = (draft.header.number, draft.header.parent_hash);
        if parent != head.hash || head.number.checked_add(1) != Some(number) {
            return Err(BuildError::OtherParent {
                number,
                parent,
                head,
            });
        }
        self.reader.load_top(self.shard_depth)?;
        self.reader.divide();
        let (mut left_out, mut kept) = (Vec::new(), Vec::new());
        let mut senders = Vec::new();
        let mut timings = BuildTimings::default();
        let start = Instant::now();
        for (number, sender) in senders_of(submissions).into_iter().enumerate() {
            match sender {
                Ok(sender) => {
                    kept.push(number);
                    senders.push(sender);
                }
                Err(error) => left_out.push((number, error.into())),
            }
        }
        timings.senders = start.elapsed();
        let start = Instant::now();
        let ran_on = kept.iter().map(|at| submissions[*at].ran_on);
        let revised = ran_on.filter(|ran_on| *ran_on != head).count();
        let fetched = self.revise(submissions, &mut kept, &mut senders, &mut left_out)?;
        timings.revise = start.elapsed();
        let start = Instant::now();
        let transactions = kept.iter().map(|at| submissions[*at].transaction.clone());
        draft.body.transactions = transactions.collect();
        let chosen = self.execute(&draft, &senders)?;
        for (at, error) in chosen.left_out {
            left_out.push((kept[at], LeftOut::Execution(Box::new(error))));
        }
        left_out.sort_by_key(|(number, _)| *number);
        timings.execute = start.elapsed();
        let start = Instant::now();
        let mut built = self.finish(draft, &chosen.kept, chosen.outcome, left_out)?;
        timings.witness = built.timings.witness;
        timings.finish = start.elapsed().saturating_sub(timings.witness);
        built.timings = timings;
        (built.revised, built.fetched) = (revised, fetched);
        Ok(built)
    }

    /// Prunes its trie to the levels that it keeps.
    ///
    /// # Errors
    ///
    /// Never for a trie that was read.
    pub fn prune(&mut self) -> Result<(), ReaderError> {
        self.reader.settle()
    }

    /// Completes the builder's trie with the nodes of bags, and with nodes of shards or not at all. Returns on how many paths these were
    /// missing.
    fn revise(
        &self,
        submissions: &[Submission],
        kept: &mut Vec<usize>,
        senders: &mut Vec<Address>,
        left_out: &mut Vec<(usize, LeftOut)>,
    ) -> Result<usize, BuildError> {
        let bag = self.hash_nodes(submissions, kept);
        let codes = kept.iter().map(|at| &submissions[*at].bag.codes);
        for codes in codes.filter(|codes| !codes.is_empty()) {
            self.reader.offer_codes(codes);
        }
        let touched = kept
            .iter()
            .flat_map(|at| submissions[*at].touched.accounts());
        let all = ProofTargets::new(touched.cloned().collect());
        let missing = self.reader.offer(&bag, &all);
        if missing == 0 {
            return Ok(0);
        }
        if self.incomplete == Incomplete::Fetch {
            self.reader.load(&all, Deletes::Nothing)?;
            return Ok(missing);
        }
        let mut stays = Vec::with_capacity(kept.len());
        for at in &*kept {
            let Submission {
                touched, ran_on, ..
            } = &submissions[*at];
            let paths = self.reader.offer(&bag, touched);
            stays.push(paths == 0);
            if paths > 0 {
                let ran_on = *ran_on;
                left_out.push((*at, LeftOut::Stale { ran_on, paths }));
            }
        }
        let mut of_kept = stays.iter();
        kept.retain(|_| of_kept.next().is_some_and(|stays| *stays));
        let mut of_senders = stays.iter();
        senders.retain(|_| of_senders.next().is_some_and(|stays| *stays));
        Ok(0)
    }

    /// The nodes of all bags, by their hashes.
    fn hash_nodes(&self, submissions: &[Submission], kept: &[usize]) -> BagNodes {
        let threads = self.reader.threads();
        let groups = threads.get().min(1 + kept.len() / SUBMISSIONS_AT_ONCE);
        let parts = kept.chunks(SUBMISSIONS_AT_ONCE).collect();
        let hashed = each(threads, parts, |part| {
            let nodes = part.iter().flat_map(|at| &submissions[*at].bag.nodes);
            HashedNodes::new(nodes, groups)
        });
        let collect = |group| NodesByHash::collect(&hashed, group);
        BagNodes::of_groups(each(threads, (0..groups).collect(), collect))
    }

    /// Executes a draft, and leaves out transactions that can't be executed.
    fn execute(
        &self,
        draft: &Block,
        senders: &[Address],
    ) -> Result<Chosen<ReaderError>, BuildError> {
        let threads = self.reader.threads();
        // On few threads running ahead takes longer than running in order.
        let kind = ExecutorKind::Auto.for_block(false, threads.get());
        let in_parallel = kind != ExecutorKind::Sequential && !senders.is_empty();
        if in_parallel || self.incomplete == Incomplete::Reject {
            // What the block reads besides its transactions is in no bag.
            let without = Block {
                header: draft.header.clone(),
                body: BlockBody {
                    transactions: Vec::new(),
                    ommers: draft.body.ommers.clone(),
                    withdrawals: draft.body.withdrawals.clone(),
                },
            };
            let system = self.spec.choose(&without, &[], &self.reader);
            system.map_err(build_error)?;
            // An empty block pays nobody.
            let paid = (keccak256(draft.header.beneficiary), Vec::new());
            let paid = ProofTargets::new(vec![paid]);
            self.reader.load(&paid, Deletes::Nothing)?;
        }
        let executor = BlockExecutor::new(kind).with_threads(threads);
        if in_parallel && let Some(outcome) = self.execute_all(&executor, draft, senders) {
            return Ok(Chosen {
                kept: (0..senders.len()).collect(),
                left_out: Vec::new(),
                outcome,
            });
        }
        let chosen = match self.incomplete {
            Incomplete::Fetch => self.spec.choose(draft, senders, &self.reader),
            Incomplete::Reject => {
                let known = self.reader.without_asking();
                self.spec.choose(draft, senders, known)
            }
        };
        chosen.map_err(build_error)
    }

    /// Executes a draft on several threads. `None` if some transaction can't be executed.
    fn execute_all(
        &self,
        executor: &BlockExecutor,
        draft: &Block,
        senders: &[Address],
    ) -> Option<Outcome> {
        let run = DryRun {
            block: draft,
            post_merge: true,
            senders,
            access_list: None,
            pre_state: None,
        };
        for _ in 0..ROUNDS_MAX {
            let (outcome, missed) = self.reader.held(|state| {
                let ran = self.spec.dry_run(run, state, executor, Hooks::default());
                ran.ok()
            });
            if outcome.is_some() {
                return outcome;
            }
            // A transaction whose state can't be read is left out.
            if missed.is_empty()
                || self.incomplete == Incomplete::Reject
                || self.reader.load_missed(missed).is_err()
            {
                break;
            }
        }
        None
    }

    /// Completes the block of an outcome, with those transactions of the draft that are kept, and moves on to it.
    fn finish(
        &mut self,
        draft: Block,
        kept: &[usize],
        outcome: Outcome,
        left_out: Vec<(usize, LeftOut)>,
    ) -> Result<Built, BuildError> {
        let threads = self.reader.threads();
        let touched = outcome.access_list.as_ref();
        let touched = touched.map(|list| targets_of_list(list, threads));
        let touched = touched.unwrap_or_default();
        self.reader.load(&touched, Deletes::Nothing)?;
        self.reader.load_for_changes(&outcome.changes)?;
        let start = Instant::now();
        let bag = NodeBag {
            nodes: self.reader.witness(&touched, &outcome.changes)?,
            codes: self.reader.codes_of(&touched),
        };
        let witness = start.elapsed();
        let is_listed = draft.header.block_access_list_hash.is_some();
        let depth = self.shard_depth;
        let mut top = Vec::new();
        let (changes, reader) = (&outcome.changes, &mut self.reader);
        // The roots of transactions and receipts take long, and do not depend on the state root.
        let (listed, executed) = (OnceLock::new(), OnceLock::new());
        let header = draft.header.clone();
        let mut completed = Header::default();
        let list_transactions = || {
            let mut block = draft;
            keep_transactions(&mut block, kept);
            _ = listed.set(block);
        };
        let outcome_of = || {
            let mut header = header;
            complete_header(&mut header, &outcome, B256::ZERO);
            _ = executed.set(header);
        };
        let beside: Vec<Box<dyn FnOnce() + Send + '_>> =
            vec![Box::new(list_transactions), Box::new(outcome_of)];
        let id = reader.advance_beside(changes, beside, |trie, root| {
            let mut header = executed.get().expect(DONE).clone();
            header.transactions_root = listed.get().expect(DONE).header.transactions_root;
            header.state_root = root;
            top = top_nodes(trie, depth);
            completed = header.clone();
            header
        })?;
        let mut block = listed.into_inner().expect(DONE);
        block.header = completed;
        let storage_roots = reader.storage_roots(changes);
        reader.settle()?;
        let mut rlp = Vec::new();
        block.encode(&mut rlp);
        let update = BlockUpdate {
            header: block.header.clone(),
            changes: outcome.changes,
            codes: outcome.codes.into_iter().map(|(_, code)| code).collect(),
            storage_roots,
            top,
            body: body_of(&rlp).expect("an encoded block is a list with a header"),
        };
        self.reader.offer_codes(&update.codes);
        Ok(Built {
            block,
            id,
            update,
            access_list: outcome.access_list.filter(|_| is_listed),
            bag,
            gas_used: outcome.gas_used,
            left_out,
            revised: 0,
            fetched: 0,
            timings: BuildTimings {
                witness,
                ..BuildTimings::default()
            },
        })
    }
}

const DONE: &str = "all jobs are done";

/// The senders of all submissions.
fn senders_of(submissions: &[Submission]) -> Vec<Result<Address, SignatureError>> {
    let transactions = submissions.iter().map(|it| it.transaction.clone());
    let transactions: Vec<_> = transactions.collect();
    match recover_senders(&transactions, true) {
        Ok(senders) => senders.into_iter().map(Ok).collect(),
        // One by one, to find those that are valid.
        Err(_) => transactions
            .iter()
            .map(|transaction| {
                let senders = recover_senders(std::slice::from_ref(transaction), true)?;
                Ok(senders[0])
            })
            .collect(),
    }
}

fn build_error(failed: DryRunError<ReaderError>) -> BuildError {
    match failed.error {
        ExecutionError::Database(error) => BuildError::Reader(error),
        error => BuildError::Block {
            id: failed.id,
            reason: error.to_string(),
        },
    }
}

impl Built {
    /// The block with what executing it again needs: a verifier has no state of its own. `parent` is the RLP of the parent's
    /// header.
    pub fn witness(&self, parent: alloy_primitives::Bytes) -> BlockWitness {
        use alloy_rlp::Encodable;
        let mut rlp = Vec::new();
        self.block.encode(&mut rlp);
        BlockWitness {
            form: WitnessForm::Own,
            block: rlp.into(),
            witness: Witness {
                state: self.bag.nodes.clone(),
                codes: self.bag.codes.clone(),
                keys: Vec::new(),
                headers: vec![parent],
            },
            layered: None,
        }
    }
}
