//! Proofs of ranges: all accounts, or all slots of one account, from one hashed key to another.

use crate::{
    error::Missing,
    graft::LeafValue,
    range::{ExtractedRange, LeafRange, successor},
    witness::{WitnessError, WitnessNodes},
};
use alloc::vec::Vec;
use alloy_primitives::{Address, B256, Bytes, U256};
use cambium_keccak::keccak256;
use cambium_primitives::Account;

/// A proof of a state's content in a range of hashed keys. The nodes contain the accounts or slots, and
/// [`RangeProof::verify_accounts`] and [`RangeProof::verify_slots`] return them.
///
/// A whole state, or the whole storage of an account, is proved in parts: each begins where the one before
/// says ([`ProvedPage::next`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RangeProof {
    /// The account whose slots these are; `None` for accounts.
    pub address: Option<Address>,
    /// First hashed key, of which there need not be anything.
    pub first: B256,
    /// Last hashed key, which belongs to the range.
    pub last: B256,
    /// RLP of the nodes, in any order.
    pub nodes: Vec<Bytes>,
}

/// Maximum number of leaves of a range, unless the proof has as many nodes or the verifier says otherwise.
const LEAVES_MAX: usize = 1 << 20;

/// Leaves that a [`RangeProof`] proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvedPage<T> {
    /// Hashed keys and values, in the order of the keys. There are no others in the range.
    pub values: Vec<(B256, T)>,
    /// The key at which the next page begins; `None` if this was the last one.
    pub next: Option<B256>,
}

/// Error of [`RangeProof::verify`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeProofError {
    /// The nodes are not those of a trie with the root.
    #[error(transparent)]
    Nodes(WitnessError),
    /// The nodes leave out a part of the range.
    #[error(transparent)]
    Missing(Missing),
    /// The range has more leaves than the verifier accepts.
    #[error(
        "the range has more than {leaves_max} accounts or slots, which is the verifier's limit"
    )]
    TooMany {
        /// Maximum number of leaves.
        leaves_max: usize,
    },
    /// The range ends before it begins.
    #[error("it ends before it begins: its first path is {first}, its last {last}")]
    Empty {
        /// First hashed key.
        first: B256,
        /// Last hashed key.
        last: B256,
    },
    /// The range does not begin where it should.
    #[error("it begins at {first}, not at {expected}")]
    OtherStart {
        /// Where the range should begin.
        expected: B256,
        /// First hashed key.
        first: B256,
    },
    /// The range is one of slots instead of accounts, or of slots of another account.
    #[error("it is of {}, not of {}", of(found), of(expected))]
    OtherKind {
        /// The account whose slots were asked for; `None` for accounts.
        expected: Option<Address>,
        /// The account whose slots these are; `None` for accounts.
        found: Option<Address>,
    },
}

/// Describes the leaves of a range for errors.
fn of(address: &Option<Address>) -> alloc::string::String {
    match address {
        None => "accounts".into(),
        Some(address) => alloc::format!("slots of {address}"),
    }
}

/// Verifies slots of the account at keccak(address) `account`, from the hashed key `from` on: as many as the RLP of `nodes`, which are
/// untrusted, leads to without a gap from the state root `root`, and `slots_max` at most. The next page begins at the gap, whoever left
/// it.
///
/// # Errors
///
/// If a node is malformed, or if the nodes do not even lead to what comes first.
pub fn verify_slots_from(
    root: B256,
    account: B256,
    from: B256,
    nodes: &[Bytes],
    slots_max: usize,
) -> Result<ProvedPage<U256>, RangeProofError> {
    let nodes = WitnessNodes::new(root, nodes).map_err(RangeProofError::Nodes)?;
    let range = LeafRange::slots(account, from, B256::repeat_byte(u8::MAX));
    let mut leaves = Vec::new();
    let next = match nodes.leaves_into(&range, slots_max, &mut leaves) {
        Ok(true) => None,
        Ok(false) => match leaves.last() {
            Some((last, _)) => successor(last),
            None => Some(from),
        },
        Err(missing) => match range.first_below(&missing.path) {
            next if next > from => Some(next),
            _ => return Err(RangeProofError::Missing(missing)),
        },
    };
    let values = leaves.into_iter().filter_map(|(slot, leaf)| match leaf {
        LeafValue::Slot(value) => Some((slot, value)),
        _ => None,
    });
    Ok(ProvedPage {
        values: values.collect(),
        next,
    })
}

impl RangeProof {
    /// The proof of an extracted range. `address` is the account whose slots these are.
    pub fn new(address: Option<Address>, extracted: &ExtractedRange) -> Self {
        Self {
            address,
            first: extracted.range.first,
            last: extracted.range.last,
            nodes: extracted.trie.witness_nodes(),
        }
    }

    /// The range, by hashed keys.
    pub fn range(&self) -> LeafRange {
        LeafRange {
            account: self.address.map(|address| keccak256(address.as_slice())),
            first: self.first,
            last: self.last,
        }
    }

    /// The hashed key after the range, at which the next page begins; `None` after the last key of all. It
    /// follows from the range alone, so a prover can leave nothing out between two pages.
    pub fn next(&self) -> Option<B256> {
        successor(&self.last)
    }

    /// Verifies a page of accounts by keccak(address) that is to begin at `from`.
    ///
    /// ```
    /// use alloy_primitives::B256;
    /// use cambium_primitives::Account;
    /// use cambium_trie::{RangeProof, RangeProofError};
    ///
    /// /// All accounts of the state with a root, from a node that is not trusted.
    /// fn accounts(
    ///     root: B256,
    ///     ask: impl Fn(B256) -> RangeProof,
    /// ) -> Result<Vec<(B256, Account)>, RangeProofError> {
    ///     let (mut all, mut next) = (Vec::new(), Some(B256::ZERO));
    ///     while let Some(from) = next {
    ///         let page = ask(from).verify_accounts(root, from)?;
    ///         all.extend(page.values);
    ///         next = page.next;
    ///     }
    ///     Ok(all)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`RangeProof::verify`], and [`RangeProofError::OtherKind`] or [`RangeProofError::OtherStart`] for
    /// another range.
    pub fn verify_accounts(
        &self,
        root: B256,
        from: B256,
    ) -> Result<ProvedPage<Account>, RangeProofError> {
        self.page(root, None, from, |value| match value {
            LeafValue::Account(account) => Some(account),
            _ => None,
        })
    }

    /// Verifies a page of the slots of an account, by keccak(slot), that is to begin at `from`. An account
    /// that does not exist has none.
    ///
    /// # Errors
    ///
    /// As [`RangeProof::verify_accounts`].
    pub fn verify_slots(
        &self,
        root: B256,
        address: Address,
        from: B256,
    ) -> Result<ProvedPage<U256>, RangeProofError> {
        self.page(root, Some(address), from, |value| match value {
            LeafValue::Slot(value) => Some(value),
            _ => None,
        })
    }

    fn page<T>(
        &self,
        root: B256,
        expected: Option<Address>,
        from: B256,
        value: impl Fn(LeafValue) -> Option<T>,
    ) -> Result<ProvedPage<T>, RangeProofError> {
        if self.address != expected {
            return Err(RangeProofError::OtherKind {
                expected,
                found: self.address,
            });
        }
        if self.first != from {
            return Err(RangeProofError::OtherStart {
                expected: from,
                first: self.first,
            });
        }
        let (leaves, _) = self.verify(root)?;
        let values = leaves.into_iter();
        let values = values.filter_map(|(key, leaf)| Some((key, value(leaf)?)));
        Ok(ProvedPage {
            values: values.collect(),
            next: self.next(),
        })
    }

    /// Verifies the proof against the state root `root`. Returns everything in the range that it claims to
    /// be of, and the number of nodes that do not belong to the state.
    ///
    /// # Errors
    ///
    /// If a node is malformed, if nodes of the range are missing, if the range ends before it begins, or if it has over
    /// a million leaves and far more than nodes: [`Self::verify_up_to`] has another limit.
    pub fn verify(&self, root: B256) -> Result<(Vec<(B256, LeafValue)>, usize), RangeProofError> {
        self.verify_up_to(root, LEAVES_MAX.max(2 * self.nodes.len()))
    }

    /// As [`Self::verify`], for a range of at most `leaves_max` leaves. Equal accounts and slots have equal nodes, which
    /// a proof lists once, so that a small proof may be of many.
    ///
    /// # Errors
    ///
    /// As [`Self::verify`], and [`RangeProofError::TooMany`] if there are more.
    pub fn verify_up_to(
        &self,
        root: B256,
        leaves_max: usize,
    ) -> Result<(Vec<(B256, LeafValue)>, usize), RangeProofError> {
        let (first, last) = (self.first, self.last);
        if first > last {
            return Err(RangeProofError::Empty { first, last });
        }
        let nodes = WitnessNodes::new(root, &self.nodes).map_err(RangeProofError::Nodes)?;
        let leaves = nodes.leaves(&self.range(), leaves_max);
        let leaves = leaves.map_err(RangeProofError::Missing)?;
        let leaves = leaves.ok_or(RangeProofError::TooMany { leaves_max })?;
        Ok((leaves, nodes.unused()))
    }
}
