//! Where absent subtries are loaded from.

use crate::{arena::Link, error::Missing, node_ref::Stub, partial::PartialTrie};
use cambium_primitives::Path;

/// Loads absent subtries that stand in the way.
pub trait Resolve {
    /// Why a subtrie could not be loaded.
    type Error;

    /// Builds the subtrie's root, and as much below it as is at hand, in `into` (see
    /// [`PartialTrie::graft_node`] and [`PartialTrie::graft_leaves`]) and returns its link. The
    /// trie takes the stub's word for the root's reference, or checks it where the root brings
    /// its own.
    fn resolve(
        &mut self,
        path: &Path,
        stub: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, Self::Error>;
}

/// Loads nothing: for tries that hold all they are asked for, such as witnesses.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoResolve;

impl Resolve for NoResolve {
    type Error = Missing;

    fn resolve(
        &mut self,
        path: &Path,
        stub: &Stub,
        _into: &mut PartialTrie,
    ) -> Result<Link, Missing> {
        Err(Missing {
            path: *path,
            node: stub.node,
        })
    }
}
