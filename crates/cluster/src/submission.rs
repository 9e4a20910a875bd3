//! Transactions that come with the nodes that they read: a client has run them on a recent state.

use crate::{
    bag::{NodeBag, ReadGroup, ReadRequest},
    helpers::each,
    message::{RequestError, is_all, list, too_much, unlisted},
    reader::{Reader, ReaderError},
};
use alloy_consensus::{BlockBody, Header};
use alloy_eips::{Decodable2718, Encodable2718};
use alloy_primitives::{Address, B256, Bytes, keccak256, map::HashMap};
use alloy_rlp::Header as RlpHeader;
use cambium_chain::{Block, ChainSpec};
use cambium_evm::{ExecutionError, Outcome, Recorder, Transaction, TransactionFault};
use cambium_primitives::{AccessList, BlockId};
use cambium_trie::{BagLevels, Deletes, ProofTargets};
use std::num::NonZeroUsize;

/// A transaction, with what it read on a recent state.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The transaction.
    pub transaction: Transaction,
    /// The block on whose state it ran.
    pub ran_on: BlockId,
    /// Paths of the accounts and slots that it read or wrote.
    pub touched: ProofTargets,
    /// The nodes on these paths below the builder's retention level, and codes.
    pub bag: NodeBag,
}

/// Why a transaction is not submitted.
#[derive(Debug, thiserror::Error)]
pub enum DroppedError {
    /// The state can't be read.
    #[error(transparent)]
    Reader(#[from] ReaderError),
    /// It would be invalid.
    #[error("the transaction is invalid on the state after block {ran_on}: {reason}")]
    Invalid {
        /// The block on whose state it ran.
        ran_on: BlockId,
        /// The rule that it breaks.
        reason: TransactionFault,
    },
    /// It would use gas for nothing.
    #[error("the transaction reverts on the state after block {ran_on}, {gas_used} gas later")]
    Reverts {
        /// The block on whose state it ran.
        ran_on: BlockId,
        /// Gas that it uses.
        gas_used: u64,
    },
    /// The block that it would be in can't be executed.
    #[error("no block can be built on block {ran_on}: {reason}")]
    Block {
        /// The block on whose state it ran.
        ran_on: BlockId,
        /// What its execution fails with.
        reason: String,
    },
}

/// Accounts whose addresses a thread hashes at once: 100 us of work.
const ACCOUNTS_AT_ONCE: usize = 256;

/// Most bytes of an encoded submission.
pub(crate) const SUBMISSION_BYTES_MAX: usize = 4 << 20;

impl Submission {
    /// The submission as RLP: a list of the transaction (EIP-2718), what it read, as a [`ReadRequest`], and the bag, each as a string.
    pub fn encode(&self) -> Vec<u8> {
        let read = ReadRequest {
            block: self.ran_on,
            groups: vec![ReadGroup {
                targets: self.touched.clone(),
                levels: BagLevels {
                    accounts: 0,
                    slots: 0,
                    deletes: Deletes::Slots,
                },
            }],
            codes: Vec::new(),
            slots_from: None,
        };
        let parts = [
            self.transaction.encoded_2718(),
            read.encode(),
            self.bag.encode(),
        ];
        let [transaction, read, bag] = parts.map(Bytes::from);
        let mut out = Vec::new();
        list(&[&transaction, &read, &bag], &mut out);
        out
    }

    /// Decodes a submission, which is untrusted.
    ///
    /// # Errors
    ///
    /// If it is malformed or too long.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, RequestError> {
        if bytes.len() > SUBMISSION_BYTES_MAX {
            return Err(too_much("bytes", SUBMISSION_BYTES_MAX));
        }
        let mut parts = unlisted(&mut bytes)?;
        is_all(bytes)?;
        let mut transaction = RlpHeader::decode_bytes(&mut parts, false)?;
        let read = ReadRequest::decode(RlpHeader::decode_bytes(&mut parts, false)?)?;
        let bag = NodeBag::decode(RlpHeader::decode_bytes(&mut parts, false)?)?;
        is_all(parts)?;
        let decoded = Transaction::decode_2718(&mut transaction);
        let decoded = decoded.map_err(|_| alloy_rlp::Error::Custom("not a transaction"))?;
        is_all(transaction)?;
        let groups = read.groups.into_iter();
        let targets = groups.fold(ProofTargets::default(), |all, group| {
            all.and(&group.targets)
        });
        Ok(Self {
            transaction: decoded,
            ran_on: read.block,
            touched: targets,
            bag,
        })
    }

    /// Runs a transaction on the state of `reader`, in a block whose header is guessed, and gathers what a builder needs that
    /// keeps nodes at depths below `level`. `sender` is the transaction's.
    ///
    /// # Errors
    ///
    /// If the transaction would be invalid or revert there, or the state can't be read.
    pub fn prepare(
        reader: &Reader,
        spec: &ChainSpec,
        guessed: &Header,
        transaction: Transaction,
        sender: Address,
        level: u8,
    ) -> Result<Self, DroppedError> {
        let ran_on = reader.block();
        let draft = Block::new(
            guessed.clone(),
            BlockBody {
                transactions: vec![transaction.clone()],
                ommers: Vec::new(),
                withdrawals: guessed.withdrawals_root.map(|_| Vec::new().into()),
            },
        );
        let recorder = Recorder::new(reader);
        let chosen = spec.choose(&draft, &[sender], &recorder);
        let chosen = chosen.map_err(|error| match error.error {
            ExecutionError::Database(error) => DroppedError::Reader(error),
            error => DroppedError::Block {
                ran_on,
                reason: error.to_string(),
            },
        })?;
        if let Some((_, error)) = chosen.left_out.into_iter().next() {
            return Err(match error {
                ExecutionError::Database(error) => DroppedError::Reader(error),
                ExecutionError::InvalidTransaction { reason, .. } => {
                    DroppedError::Invalid { ran_on, reason }
                }
                error => DroppedError::Block {
                    ran_on,
                    reason: error.to_string(),
                },
            });
        }
        if let Some(receipt) = chosen.outcome.receipts.first()
            && !receipt.status()
        {
            let gas_used = chosen.outcome.gas_used;
            return Err(DroppedError::Reverts { ran_on, gas_used });
        }
        let read = recorder.into_touched();
        let targets = |outcome: &Outcome| {
            let list = outcome.access_list.as_ref();
            list.map(|list| targets_of_list(list, NonZeroUsize::MIN))
                .unwrap_or_default()
        };
        // What every block reads, a builder has.
        let mut without = draft;
        without.body.transactions.clear();
        let system = spec.choose(&without, &[], reader);
        let system = system.map(|chosen| targets(&chosen.outcome));
        let beneficiary = vec![(keccak256(guessed.beneficiary), Vec::new())];
        let system = system
            .unwrap_or_default()
            .and(&ProofTargets::new(beneficiary));
        let touched = difference(&targets(&chosen.outcome), &system);
        // What it writes may be deleted by then.
        reader.load(&touched, Deletes::Slots)?;
        let levels = BagLevels {
            accounts: level,
            slots: 0,
            deletes: Deletes::Slots,
        };
        let codes = reader.codes(read.codes.iter());
        Ok(Self {
            transaction,
            ran_on,
            bag: NodeBag {
                nodes: reader.nodes(&touched, levels)?,
                codes,
            },
            touched,
        })
    }
}

/// The targets that are not among others. An account stays while it has slots that do.
fn difference(targets: &ProofTargets, others: &ProofTargets) -> ProofTargets {
    let others: HashMap<_, _> = others
        .accounts()
        .iter()
        .map(|(path, slots)| (*path, slots))
        .collect();
    let left = targets.accounts().iter().filter_map(|(path, slots)| {
        let Some(known) = others.get(path) else {
            return Some((*path, slots.clone()));
        };
        let is_new = |slot: &&B256| known.binary_search(slot).is_err();
        let slots: Vec<_> = slots.iter().filter(is_new).copied().collect();
        (!slots.is_empty()).then_some((*path, slots))
    });
    ProofTargets::new(left.collect())
}

/// All that an access list names, by path.
pub(crate) fn targets_of_list(list: &AccessList, threads: NonZeroUsize) -> ProofTargets {
    let parts = list.accounts().chunks(ACCOUNTS_AT_ONCE).collect();
    let targets = each(threads, parts, |part| {
        let accounts = part.iter().map(|account| {
            let slots = account.storage_slots();
            let slots = slots.map(|slot| keccak256(slot.to_be_bytes::<32>()));
            (keccak256(account.address), slots.collect::<Vec<_>>())
        });
        accounts.collect::<Vec<_>>()
    });
    ProofTargets::new(targets.into_iter().flatten().collect())
}
