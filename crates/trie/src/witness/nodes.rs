//! The nodes of a witness by their hashes: reads that unfold nothing, and updates that unfold what they change.

use super::{
    listed::WitnessError,
    unfold::{ByHash, Leaves, Unfold, by_hash},
};
use crate::{
    arena::Link,
    error::Missing,
    graft::LeafValue,
    node_ref::{EMPTY_ROOT, NodeRef, Stub},
    partial::PartialTrie,
    range::LeafRange,
    resolve::Resolve,
    rlp::{Child, RawNode, decode_account, decode_slot},
};
use alloc::{vec, vec::Vec};
use alloy_primitives::{B256, Bytes, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, Account, Path};
use hashbrown::{HashMap, HashSet};

/// The nodes of a state trie that a witness has. All nodes that are linked from the root are well-formed.
///
/// A look-up walks from hash to hash. It takes no memory, even where the tries of a thousand accounts share their
/// nodes.
#[derive(Clone, Debug)]
pub struct WitnessNodes {
    root: B256,
    nodes: HashMap<B256, Bytes>,
    unused: usize,
}

/// Leaf at a path.
enum Found {
    Account(Account, B256),
    Slot(U256),
    Nothing,
}

/// Error of unfolding a node for an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfoldError {
    /// The witness lacks a node.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The update needs far more nodes than the witness has, and than there are changes.
    #[error(transparent)]
    Witness(#[from] WitnessError),
}

impl WitnessNodes {
    /// Finds the nodes that are linked from the root hash `root` among `nodes`, which are untrusted.
    ///
    /// # Errors
    ///
    /// [`WitnessError::Malformed`] if one of them is malformed.
    pub fn new(root: B256, nodes: &[Bytes]) -> Result<Self, WitnessError> {
        let mut linked = Self {
            root,
            nodes: by_hash(nodes),
            unused: nodes.len(),
        };
        linked.unused -= linked.check()?;
        Ok(linked)
    }

    /// Returns the number of nodes that are not linked from the root, repeated ones included.
    pub const fn unused(&self) -> usize {
        self.unused
    }

    /// Checks all nodes that are linked from the root, each once for each depth at which it is. Returns their
    /// number.
    fn check(&self) -> Result<usize, WitnessError> {
        if self.root == EMPTY_ROOT {
            return Ok(0);
        }
        let (mut linked, mut seen) = (HashSet::new(), HashSet::new());
        let mut open = vec![Place {
            child: Child::Hash(self.root),
            within: self.root,
            at: Path::EMPTY,
            in_storage: false,
            is_of_extension: false,
        }];
        while let Some(place) = open.pop() {
            let Place { within, at, .. } = place;
            let (rlp, within) = match place.child {
                Child::Empty => continue,
                Child::Inline(rlp) => (rlp, within),
                Child::Hash(hash) => match self.nodes.get(&hash) {
                    None => continue,
                    Some(rlp) => {
                        linked.insert(hash);
                        let key = (hash, at.len(), place.in_storage, place.is_of_extension);
                        if !seen.insert(key) {
                            continue;
                        }
                        (&rlp[..], hash)
                    }
                },
            };
            place.open(rlp, within, &mut open).map_err(|what| {
                let (hash, path) = (within, at);
                WitnessError::Malformed { hash, path, what }
            })?;
        }
        Ok(linked.len())
    }

    /// Returns the account at `path`; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// If a node is missing.
    pub fn account(&self, path: &B256) -> Result<Option<Account>, Missing> {
        match self.find(&Path::account(path))? {
            Found::Account(account, _) => Ok(Some(account)),
            Found::Slot(_) | Found::Nothing => Ok(None),
        }
    }

    /// Returns the value of a slot; zero if there is none.
    ///
    /// # Errors
    ///
    /// If a node is missing.
    pub fn slot(&self, account: &B256, slot: &B256) -> Result<U256, Missing> {
        match self.find(&Path::slot(account, slot))? {
            Found::Slot(value) => Ok(value),
            Found::Account(..) | Found::Nothing => Ok(U256::ZERO),
        }
    }

    /// Returns whether an account has slots: its leaf has the root of their trie.
    ///
    /// # Errors
    ///
    /// If a node is missing.
    pub fn has_storage(&self, account: &B256) -> Result<bool, Missing> {
        match self.find(&Path::account(account))? {
            Found::Account(_, root) => Ok(root != EMPTY_ROOT),
            Found::Slot(_) | Found::Nothing => Ok(false),
        }
    }

    /// The root of the account trie, as a child.
    fn top(&self) -> Child<'_> {
        child_of(self.root)
    }

    /// The leaf at a path of 64 or 128 nibbles.
    fn find(&self, path: &Path) -> Result<Found, Missing> {
        let (mut child, mut depth) = (self.top(), 0);
        loop {
            let Some(node) = self.read(child, || path.prefix(depth))? else {
                return Ok(Found::Nothing);
            };
            match node {
                RawNode::Branch(children) => {
                    child = children[usize::from(path.nibble(depth))];
                    depth += 1;
                }
                RawNode::Extension(own, below) => {
                    if path.suffix(depth).common_prefix_len(&own) < own.len() {
                        return Ok(Found::Nothing);
                    }
                    child = below;
                    depth += own.len();
                }
                RawNode::Leaf(own, value) => {
                    if path.suffix(depth).common_prefix_len(&own) < own.len() {
                        return Ok(Found::Nothing);
                    }
                    depth += own.len();
                    if depth == 2 * ACCOUNT_NIBBLES {
                        return Ok(Found::Slot(decode_slot(value).expect(CHECKED)));
                    }
                    let (account, root) = decode_account(value).expect(CHECKED);
                    if path.len() == ACCOUNT_NIBBLES {
                        return Ok(Found::Account(account, root));
                    }
                    child = child_of(root);
                }
            }
        }
    }

    /// The node that a child is. `None` if it is empty.
    fn read<'a>(
        &'a self,
        child: Child<'a>,
        path: impl Fn() -> Path,
    ) -> Result<Option<RawNode<'a>>, Missing> {
        let rlp = match child {
            Child::Empty => return Ok(None),
            Child::Inline(rlp) => rlp,
            Child::Hash(hash) => match self.nodes.get(&hash) {
                Some(rlp) => rlp,
                None => {
                    return Err(Missing {
                        path: path(),
                        node: NodeRef::hash(hash),
                    });
                }
            },
        };
        Ok(Some(RawNode::decode(rlp).expect(CHECKED)))
    }

    /// Returns the leaves of a range, in the order of their paths. `None` if they are more than `leaves_max`.
    ///
    /// # Errors
    ///
    /// If a node of the range is missing.
    pub fn leaves(
        &self,
        range: &LeafRange,
        leaves_max: usize,
    ) -> Result<Option<Vec<(B256, LeafValue)>>, Missing> {
        let mut leaves = Vec::new();
        let is_all = self.leaves_into(range, leaves_max, &mut leaves)?;
        Ok(is_all.then_some(leaves))
    }

    /// As [`Self::leaves`], into `leaves`, which has those before the missing node after an error. Returns false once there are
    /// too many.
    pub(crate) fn leaves_into(
        &self,
        range: &LeafRange,
        leaves_max: usize,
        leaves: &mut Vec<(B256, LeafValue)>,
    ) -> Result<bool, Missing> {
        let (mut at, mut child) = (Path::EMPTY, self.top());
        if let Some(account) = &range.account {
            at = Path::account(account);
            child = match self.find(&at)? {
                Found::Account(_, root) => child_of(root),
                Found::Slot(_) | Found::Nothing => Child::Empty,
            };
        }
        self.leaves_below(child, at, range, leaves_max, leaves)
    }

    /// Lists the leaves below a child. Returns false once there are too many. Recursion is bounded by the path's
    /// nibbles.
    fn leaves_below(
        &self,
        child: Child<'_>,
        at: Path,
        range: &LeafRange,
        leaves_max: usize,
        leaves: &mut Vec<(B256, LeafValue)>,
    ) -> Result<bool, Missing> {
        if child == Child::Empty || !range.reaches(&at) {
            return Ok(true);
        }
        match self.read(child, || at)? {
            None => {}
            Some(RawNode::Branch(children)) => {
                for (nibble, child) in (0..).zip(children) {
                    if !self.leaves_below(child, at.child(nibble), range, leaves_max, leaves)? {
                        return Ok(false);
                    }
                }
            }
            Some(RawNode::Extension(own, child)) => {
                return self.leaves_below(child, at.join(&own), range, leaves_max, leaves);
            }
            Some(RawNode::Leaf(own, value)) => {
                let path = at.join(&own);
                if !range.reaches(&path) {
                    return Ok(true);
                }
                if leaves.len() == leaves_max {
                    return Ok(false);
                }
                let (key, value) = match range.account {
                    Some(_) => {
                        let value = decode_slot(value).expect(CHECKED);
                        (path.slot_part(), LeafValue::Slot(value))
                    }
                    None => {
                        let (account, _) = decode_account(value).expect(CHECKED);
                        (path.account_part(), LeafValue::Account(account))
                    }
                };
                leaves.push((key.expect("a leaf's path is whole"), value));
            }
        }
        Ok(true)
    }

    /// Returns the trie of the nodes, of which nothing is unfolded yet.
    pub fn trie(&self) -> PartialTrie {
        match self.top() {
            Child::Hash(hash) => {
                PartialTrie::from_stub(Path::EMPTY, Stub::bare(NodeRef::hash(hash)))
            }
            _ => PartialTrie::new(Path::EMPTY),
        }
    }

    /// Returns what unfolds nodes of [`Self::trie`] for an update or a look-up of `leaves` accounts and slots.
    pub fn unfolder(&self, leaves: usize) -> Unfolder<'_> {
        Unfolder(Unfold::new(
            ByHash::One(&self.nodes),
            Leaves::Accounts,
            leaves,
        ))
    }
}

/// Nodes are checked when they are linked.
const CHECKED: &str = "linked nodes are well-formed";

/// The root of a trie, as a child.
fn child_of(root: B256) -> Child<'static> {
    match root {
        EMPTY_ROOT => Child::Empty,
        root => Child::Hash(root),
    }
}

/// Unfolds nodes of a witness where a trie needs them.
pub struct Unfolder<'a>(pub(super) Unfold<'a>);

impl Resolve for Unfolder<'_> {
    type Error = UnfoldError;

    fn resolve(
        &mut self,
        path: &Path,
        stub: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, UnfoldError> {
        let missing = Missing {
            path: *path,
            node: stub.node,
        };
        let hash = stub.node.as_hash().ok_or(missing)?;
        match self.0.one(into, hash, path) {
            Ok(unfolded) => Ok(unfolded.ok_or(missing)?),
            Err(fault) => Err(self.0.error(fault).into()),
        }
    }
}

/// Where a child is.
struct Place<'a> {
    child: Child<'a>,
    /// Hash of the node that has it, inlined or not.
    within: B256,
    at: Path,
    in_storage: bool,
    is_of_extension: bool,
}

impl<'a> Place<'a> {
    /// Decodes the node that is here, and lists its children.
    fn open(
        &self,
        rlp: &'a [u8],
        within: B256,
        open: &mut Vec<Place<'a>>,
    ) -> Result<(), &'static str> {
        let nibbles = match self.in_storage {
            true => 2 * ACCOUNT_NIBBLES,
            false => ACCOUNT_NIBBLES,
        };
        let left = nibbles - self.at.len();
        let node = RawNode::decode(rlp)?;
        if self.is_of_extension && !matches!(node, RawNode::Branch(_)) {
            return Err("an extension to something other than a branch");
        }
        let mut place = |child, at, in_storage, is_of_extension| {
            open.push(Place {
                child,
                within,
                at,
                in_storage,
                is_of_extension,
            });
        };
        match node {
            RawNode::Branch(_) if left == 0 => return Err("a branch below a whole path"),
            RawNode::Branch(children) => {
                for (nibble, child) in (0..).zip(children) {
                    if child != Child::Empty {
                        place(child, self.at.child(nibble), self.in_storage, false);
                    }
                }
            }
            RawNode::Extension(path, _) if path.len() >= left => {
                return Err("an extension past a whole path");
            }
            RawNode::Extension(path, child) => {
                place(child, self.at.join(&path), self.in_storage, true);
            }
            RawNode::Leaf(path, _) if path.len() != left => {
                return Err("a leaf whose path is not whole");
            }
            RawNode::Leaf(_, value) if self.in_storage => _ = decode_slot(value)?,
            RawNode::Leaf(path, value) => {
                let (_, root) = decode_account(value)?;
                place(child_of(root), self.at.join(&path), true, false);
            }
        }
        Ok(())
    }
}
