//! References to nodes, and blinded nodes that stand in for absent subtries.

use alloy_primitives::{B256, b256, hex};
use cambium_keccak::keccak256;
use core::{fmt, num::NonZeroU64};

/// Root hash of an empty trie, `keccak(rlp(""))`.
// Equal to `alloy_trie::EMPTY_ROOT_HASH`, as a test checks: the crate of alloy would come into the
// verifiers for this alone.
pub const EMPTY_ROOT: B256 =
    b256!("56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421");

/// Reference of a parent to a child: the Keccak-256 hash of the child's RLP, or the RLP itself if
/// it is shorter than 32 bytes (Yellow Paper, appendix D).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeRef {
    /// 32 if `bytes` is a hash, 1 to 31 if its first `len` bytes are RLP, 0 if unknown.
    len: u8,
    bytes: [u8; 32],
}

impl NodeRef {
    /// The reference of a node that is not hashed.
    pub(crate) const UNKNOWN: Self = Self {
        len: 0,
        bytes: [0; 32],
    };

    /// Creates a reference by hash.
    pub const fn hash(hash: B256) -> Self {
        Self {
            len: 32,
            bytes: hash.0,
        }
    }

    /// Creates an inline reference to a node with RLP of 1 to 31 bytes. Returns `None` for any
    /// other length.
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

    /// Creates the reference to the node with this RLP.
    pub fn of_rlp(rlp: &[u8]) -> Self {
        Self::inline(rlp).unwrap_or_else(|| Self::hash(keccak256(rlp)))
    }

    /// Returns the hash, or `None` if the node is inlined.
    pub fn as_hash(&self) -> Option<B256> {
        (self.len == 32).then_some(B256::new(self.bytes))
    }

    /// Returns the 32 bytes of the hash, or the RLP of an inlined node.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns 32 and the hash, or the length of an inlined node and its RLP padded with zeros, or
    /// 0 and zeros for [`Self::UNKNOWN`].
    pub(crate) const fn parts(&self) -> (u8, &[u8; 32]) {
        (self.len, &self.bytes)
    }

    /// Returns whether the node is inlined in its parent.
    pub const fn is_inline(&self) -> bool {
        self.len < 32
    }

    /// Returns the root hash if the node is a root. Roots are hashed even if their RLP is short.
    pub fn root_hash(&self) -> B256 {
        self.as_hash().unwrap_or_else(|| keccak256(self.as_bytes()))
    }

    /// Returns the reference, or `None` if it is [`Self::UNKNOWN`].
    pub(crate) const fn known(self) -> Option<Self> {
        if self.len == 0 { None } else { Some(self) }
    }

    /// Returns whether the reference is [`Self::UNKNOWN`].
    pub(crate) const fn is_unknown(&self) -> bool {
        self.len == 0
    }

    /// Length of the reference in the parent's RLP, in bytes.
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

/// Type of a node. It decides how a branch with a single remaining child collapses: a leaf or an
/// extension replaces the branch, and a branch gets an extension above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A branch node.
    Branch,
    /// An extension node.
    Extension,
    /// The leaf of an account or of a slot.
    Leaf,
}

/// Location of an absent subtrie, such as the address of a page. Opaque to the trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(pub NonZeroU64);

impl Place {
    /// Creates a place from its number. Returns `None` for zero.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// A blinded node: the root of a subtrie that is absent and known by its reference only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub {
    /// Reference to the root of the subtrie.
    pub node: NodeRef,
    /// Type of the root of the subtrie, if known.
    pub kind: Option<NodeKind>,
    /// Location from which the subtrie can be loaded, if there is one.
    pub place: Option<Place>,
}

impl Stub {
    /// Creates a blinded node of unknown type and location.
    pub const fn bare(node: NodeRef) -> Self {
        Self {
            node,
            kind: None,
            place: None,
        }
    }
}

const _: () = assert!(size_of::<Stub>() <= 48);
