//! Requests for parts of the state at one block, and the node bags that answer them.

use crate::{
    compact,
    message::{RequestError, check_length, decode_items, is_all, list, too_much, unlisted},
};
use alloy_primitives::{B256, Bytes};
use alloy_rlp::{Decodable, Encodable, Header as RlpHeader};
use cambium_primitives::BlockId;
use cambium_trie::{BagLevels, Deletes, ProofTargets};

/// Most accounts and slots of a request together.
pub(crate) const KEYS_MAX: usize = 1 << 20;
/// Most groups of a request.
const GROUPS_MAX: usize = 1 << 10;

/// Accounts and slots that are read with the same levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadGroup {
    /// Accounts, with slots of each, by path.
    pub targets: ProofTargets,
    /// What the reader has already.
    pub levels: BagLevels,
}

/// A request for the nodes on the paths of accounts and slots, and for codes, at one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The block after which the state is read.
    pub block: BlockId,
    /// What is read, by what the reader has of it.
    pub groups: Vec<ReadGroup>,
    /// Hashes of codes, each with an account that has it: the account's shard has the code.
    pub codes: Vec<(B256, B256)>,
    /// Path of an account, and of a slot from which on its slots are read: as many as the shard gives at once.
    pub slots_from: Option<(B256, B256)>,
}

/// What answers a request. It is untrusted: nodes and codes are known by their hashes alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeBag {
    /// Distinct nodes as RLP, parents first. Nodes under 32 bytes are inside their parents.
    pub nodes: Vec<Bytes>,
    /// Codes, in the order of the request.
    pub codes: Vec<Bytes>,
}

/// Why a read has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The shard does not know the block, which may come.
    #[error("block {0} is not known yet")]
    NotYet(BlockId),
    /// The shard has the state of this block no more, or never will.
    #[error("the state after block {block} is gone: the oldest one that is kept is of {oldest}")]
    Gone {
        /// The block that the request names.
        block: BlockId,
        /// The oldest block of which there is a state.
        oldest: BlockId,
    },
    /// The shard does not own an account.
    #[error("account {account} is not of shard {index} of {count}")]
    OtherShard {
        /// Path of the account.
        account: B256,
        /// Number of the shard.
        index: usize,
        /// Number of shards.
        count: usize,
    },
    /// The shard has no such code.
    #[error("no account of this shard has the code {0}")]
    NoCode(B256),
    /// The answer would be too long.
    #[error("the answer takes more than {bytes_max} bytes: ask for less at once")]
    TooBig {
        /// Most bytes of an answer.
        bytes_max: usize,
    },
    /// The request is for too much at once.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The shard, or the way to it, does not work.
    #[error("shard {index}: {what}")]
    Unavailable {
        /// Number of the shard.
        index: usize,
        /// What the shard or the network says.
        what: String,
    },
}

impl ReadRequest {
    /// Two requests for half of the accounts each, or half of the slots of a single one. `None` if there is but one thing
    /// to read.
    pub(crate) fn halves(&self) -> Option<[Self; 2]> {
        if self.slots_from.is_some() {
            return None;
        }
        let mut targets = Vec::new();
        for (at, group) in self.groups.iter().enumerate() {
            let accounts = group.targets.accounts().iter();
            targets.extend(accounts.map(|target| (at, target.clone())));
        }
        let second_codes = self.codes[self.codes.len() / 2..].to_vec();
        let first_codes = self.codes[..self.codes.len() / 2].to_vec();
        let second = match &mut targets[..] {
            [] => Vec::new(),
            [(at, (account, slots))] => {
                let second = slots.split_off(slots.len() / 2);
                match second.is_empty() {
                    true => Vec::new(),
                    false => vec![(*at, (*account, second))],
                }
            }
            _ => targets.split_off(targets.len() / 2),
        };
        let is_divided = !targets.is_empty() && !second.is_empty();
        if !is_divided && self.codes.len() < 2 && (targets.is_empty() || self.codes.is_empty()) {
            return None;
        }
        // What can't be halved is asked for with the first half, codes with the second.
        let (first_codes, second_codes) = match is_divided || targets.is_empty() {
            true => (first_codes, second_codes),
            false => (Vec::new(), self.codes.clone()),
        };
        let part = |targets: Vec<(usize, (B256, Vec<B256>))>, codes| {
            let mut groups: Vec<ReadGroup> = Vec::new();
            for own in targets.chunk_by(|a, b| a.0 == b.0) {
                let own_targets = own.iter().map(|(_, target)| target.clone()).collect();
                groups.push(ReadGroup {
                    targets: ProofTargets::new(own_targets),
                    levels: self.groups[own[0].0].levels,
                });
            }
            Self {
                block: self.block,
                groups,
                codes,
                slots_from: None,
            }
        };
        Some([part(targets, first_codes), part(second, second_codes)])
    }

    /// Number of accounts and slots.
    pub fn keys(&self) -> usize {
        let groups = self.groups.iter();
        groups
            .flat_map(|group| group.targets.accounts())
            .map(|(_, slots)| 1 + slots.len())
            .sum()
    }

    /// Refuses a request for too much.
    ///
    /// # Errors
    ///
    /// If there are too many keys, codes or groups.
    pub fn check(&self) -> Result<(), RequestError> {
        let counts = [
            ("keys", self.keys(), KEYS_MAX),
            ("codes", self.codes.len(), KEYS_MAX),
            ("groups", self.groups.len(), GROUPS_MAX),
        ];
        for (what, got, max) in counts {
            if got > max {
                return Err(RequestError::TooMuch { what, got, max });
            }
        }
        Ok(())
    }

    /// The request as RLP.
    pub fn encode(&self) -> Vec<u8> {
        let mut groups = Vec::new();
        for group in &self.groups {
            let BagLevels {
                accounts,
                slots,
                deletes,
            } = group.levels;
            let mut targets = Vec::new();
            for (account, slots) in group.targets.accounts() {
                let mut target = Vec::new();
                list(&[account, slots], &mut target);
                targets.extend(target);
            }
            let mut listed = Vec::new();
            RlpHeader {
                list: true,
                payload_length: targets.len(),
            }
            .encode(&mut listed);
            listed.extend(targets);
            let head = [accounts, slots, deletes as u8];
            let payload_length = head.iter().map(Encodable::length).sum::<usize>() + listed.len();
            RlpHeader {
                list: true,
                payload_length,
            }
            .encode(&mut groups);
            head.iter().for_each(|part| part.encode(&mut groups));
            groups.extend(listed);
        }
        let codes: Vec<B256> = self
            .codes
            .iter()
            .flat_map(|(hash, account)| [*hash, *account])
            .collect();
        let mut listed = Vec::new();
        RlpHeader {
            list: true,
            payload_length: groups.len(),
        }
        .encode(&mut listed);
        listed.extend(groups);
        // Shards that do not know of it answer requests without it.
        let slots_from = self.slots_from.map(|(account, slot)| vec![account, slot]);
        let payload_length = self.block.number.length()
            + self.block.hash.length()
            + listed.len()
            + codes.length()
            + slots_from.as_ref().map_or(0, Encodable::length);
        let mut out = Vec::new();
        RlpHeader {
            list: true,
            payload_length,
        }
        .encode(&mut out);
        self.block.number.encode(&mut out);
        self.block.hash.encode(&mut out);
        out.extend(listed);
        codes.encode(&mut out);
        if let Some(slots_from) = slots_from {
            slots_from.encode(&mut out);
        }
        out
    }

    /// Decodes a request, which is untrusted.
    ///
    /// # Errors
    ///
    /// If it is malformed, or for too much.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, RequestError> {
        check_length(bytes)?;
        let mut parts = unlisted(&mut bytes)?;
        is_all(bytes)?;
        let block = BlockId::new(u64::decode(&mut parts)?, B256::decode(&mut parts)?);
        let mut rest = unlisted(&mut parts)?;
        let mut groups = Vec::new();
        while !rest.is_empty() {
            if groups.len() == GROUPS_MAX {
                return Err(too_much("groups", GROUPS_MAX));
            }
            let mut group = unlisted(&mut rest)?;
            let accounts = u8::decode(&mut group)?;
            let slots = u8::decode(&mut group)?;
            let deletes = match u8::decode(&mut group)? {
                0 => Deletes::Nothing,
                1 => Deletes::Slots,
                2 => Deletes::All,
                _ => return Err(alloy_rlp::Error::Custom("unknown deletions").into()),
            };
            let mut targets = unlisted(&mut group)?;
            is_all(group)?;
            let mut list = Vec::new();
            while !targets.is_empty() {
                let mut target = unlisted(&mut targets)?;
                let account = B256::decode(&mut target)?;
                list.push((account, Vec::<B256>::decode(&mut target)?));
                is_all(target)?;
            }
            groups.push(ReadGroup {
                targets: ProofTargets::new(list),
                levels: BagLevels {
                    accounts,
                    slots,
                    deletes,
                },
            });
        }
        let codes = Vec::<B256>::decode(&mut parts)?;
        let slots_from = match parts.is_empty() {
            true => None,
            false => match Vec::<B256>::decode(&mut parts)?[..] {
                [account, slot] => Some((account, slot)),
                _ => return Err(alloy_rlp::Error::UnexpectedLength.into()),
            },
        };
        is_all(parts)?;
        if !codes.len().is_multiple_of(2) {
            return Err(alloy_rlp::Error::UnexpectedLength.into());
        }
        let request = Self {
            block,
            groups,
            codes: codes
                .chunks_exact(2)
                .map(|pair| (pair[0], pair[1]))
                .collect(),
            slots_from,
        };
        request.check()?;
        Ok(request)
    }
}

impl NodeBag {
    /// Bytes of nodes and codes.
    pub fn bytes(&self) -> usize {
        let all = self.nodes.iter().chain(&self.codes);
        all.map(|bytes| bytes.len()).sum()
    }

    /// Adds what another bag has.
    pub fn extend(&mut self, other: Self) {
        self.nodes.extend(other.nodes);
        self.codes.extend(other.codes);
    }

    /// The bag as RLP: a list of the nodes, compact, and of the codes. Hashes that the receiver can compute are left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut nodes = Vec::new();
        compact::encode(&self.nodes, &mut nodes);
        let mut out = Vec::new();
        list(&[&Bytes::from(nodes), &self.codes], &mut out);
        out
    }

    /// Decodes a bag, which is untrusted.
    ///
    /// # Errors
    ///
    /// If it is malformed.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, RequestError> {
        check_length(bytes)?;
        let mut parts = unlisted(&mut bytes)?;
        is_all(bytes)?;
        let nodes = RlpHeader::decode_bytes(&mut parts, false)?;
        let nodes = compact::decode(nodes)?;
        let codes = decode_items(&mut parts, "codes", 1, KEYS_MAX)?;
        is_all(parts)?;
        Ok(Self { nodes, codes })
    }
}
