//! Loading of absent subtries.

use crate::{arena::Link, error::Missing, node_ref::Stub, partial::PartialTrie};
use cambium_primitives::Path;

/// Loads absent subtries on demand.
pub trait Resolve {
    /// Error of a failed load.
    type Error;

    /// Builds the root of the subtrie at `path`, and as much below it as is available, in `into`
    /// (see [`PartialTrie::graft_node`] and [`PartialTrie::graft_leaves`]). Returns its link.
    ///
    /// If the loaded root has a cached reference, the trie compares it with that of `stub`.
    /// Otherwise it adopts the reference of `stub` unchecked.
    ///
    /// # Errors
    ///
    /// Returns an error if the subtrie is missing or unreadable.
    fn resolve(
        &mut self,
        path: &Path,
        stub: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, Self::Error>;

    /// Reads what resolving these blinded nodes needs, all at once. Each is resolved next. Does nothing by
    /// default.
    ///
    /// # Errors
    ///
    /// As [`Resolve::resolve`].
    fn read_ahead(&mut self, nodes: &[(Path, Stub)]) -> Result<(), Self::Error> {
        let _ = nodes;
        Ok(())
    }
}

/// A resolver that always fails, for tries that must hold every node needed, such as witnesses.
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
