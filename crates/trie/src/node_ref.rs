//! How a parent refers to a child, and what stands where a subtrie is absent.

use alloy_primitives::{B256, b256, hex};
use cambium_keccak::keccak256;
use core::{fmt, num::NonZeroU64};

/// Root of a trie without leaves: keccak(rlp("")).
pub const EMPTY_ROOT: B256 =
    b256!("56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421");

/// A node as its parent refers to it: the Keccak-256 of its RLP, or the RLP itself where that is
/// under 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeRef {
    /// 32: `bytes` is a hash; 1 to 31: the first `len` bytes are RLP.
    len: u8,
    bytes: [u8; 32],
}

impl NodeRef {
    /// No reference yet: the memo of a node that is not hashed.
    pub(crate) const UNKNOWN: Self = Self {
        len: 0,
        bytes: [0; 32],
    };

    /// The reference to a node by its hash.
    pub const fn hash(hash: B256) -> Self {
        Self {
            len: 32,
            bytes: hash.0,
        }
    }

    /// The reference to a node whose RLP is of 1 to 31 bytes. `None` for any other length.
    pub fn inline(rlp: &[u8]) -> Option<Self> {
        if !(1..32).contains(&rlp.len()) {
            return None;
        }
        let mut bytes = [0; 32];
        bytes[..rlp.len()].copy_from_slice(rlp);
        Some(Self {
            len: rlp.len() as u8,
            bytes,
        })
    }

    /// The reference to the node with this RLP.
    pub fn of_rlp(rlp: &[u8]) -> Self {
        Self::inline(rlp).unwrap_or_else(|| Self::hash(keccak256(rlp)))
    }

    /// The hash, unless the node is inlined.
    pub fn as_hash(&self) -> Option<B256> {
        (self.len == 32).then_some(B256::new(self.bytes))
    }

    /// The hash's 32 bytes, or the RLP of an inlined node.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// 32 and the hash, or the length of an inlined node and its RLP with zeros behind it; 0 and
    /// zeros for [`Self::UNKNOWN`].
    pub(crate) const fn parts(&self) -> (u8, &[u8; 32]) {
        (self.len, &self.bytes)
    }

    /// Whether the node is inlined in its parent.
    pub const fn is_inline(&self) -> bool {
        self.len < 32
    }

    /// The hash that the node has as a root: roots are hashed however short they are.
    pub fn root_hash(&self) -> B256 {
        self.as_hash().unwrap_or_else(|| keccak256(self.as_bytes()))
    }

    /// This reference, unless it is [`Self::UNKNOWN`].
    pub(crate) const fn known(self) -> Option<Self> {
        if self.len == 0 { None } else { Some(self) }
    }

    /// Whether this is [`Self::UNKNOWN`].
    pub(crate) const fn is_unknown(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the reference takes in its parent's RLP.
    pub(crate) const fn rlp_len(&self) -> usize {
        if self.len == 32 {
            33
        } else {
            self.len as usize
        }
    }
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_inline() { "inline " } else { "" };
        write!(f, "{kind}{}", hex::encode_prefixed(self.as_bytes()))
    }
}

impl fmt::Debug for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeRef({self})")
    }
}

/// What a node is. A branch that loses all children but one must know: the last child moves up
/// into its place if it is a leaf or an extension, and stays below an extension if it is a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// Sixteen children.
    Branch,
    /// A run of nibbles that all leaves below share.
    Extension,
    /// An account or a slot.
    Leaf,
}

/// Where an absent subtrie can be loaded from. Means nothing to the trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(pub NonZeroU64);

impl Place {
    /// The place of that number, which must not be zero.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// What stands in for an absent subtrie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub {
    /// How the parent refers to the subtrie's root.
    pub node: NodeRef,
    /// What the subtrie's root is, where that is known.
    pub kind: Option<NodeKind>,
    /// Where the subtrie can be loaded from, if anywhere.
    pub place: Option<Place>,
}

impl Stub {
    /// A stub of which only the reference is known.
    pub const fn bare(node: NodeRef) -> Self {
        Self {
            node,
            kind: None,
            place: None,
        }
    }
}

const _: () = assert!(size_of::<Stub>() <= 48);
