//! Databases that commands ask, with the history and the index that are beside them.

use super::{args::database::DbArgs, error::Failure, memory, open, output::Output};
use cambium::{Chain, ChainIndex, Node};

/// The database of a chain, or of accounts alone.
pub(crate) fn of_accounts(args: &DbArgs, out: &Output) -> Result<Node, Failure> {
    with_history(Node::of(open::state_to_read(args, out)?), args, out)
}

/// The database of a chain, without its index.
pub(crate) fn of_chain(args: &DbArgs, out: &Output) -> Result<Node, Failure> {
    beside(open::chain_to_read(args, out)?, args, out)
}

/// The database of a chain, with its index if it has one. An index that can't be read is noted.
pub(crate) fn of_blocks(args: &DbArgs, out: &Output) -> Result<Node, Failure> {
    let disk = open::disk_to_read(args)?;
    let node = of_accounts(args, out)?.with_index_on(disk, memory::of_index(args));
    node.chain()?;
    Ok(node)
}

/// The database of a chain, for a command that needs the index.
pub(crate) fn of_index(args: &DbArgs, out: &Output) -> Result<Node, Failure> {
    let chain = open::chain_to_read(args, out)?;
    let disk = open::disk_to_read(args)?;
    let index = ChainIndex::open_read_only(disk, chain.db(), memory::of_index(args))?;
    beside(chain.with_index(index), args, out)
}

/// The node of a chain, with the history of its database.
pub(crate) fn beside(chain: Chain, args: &DbArgs, out: &Output) -> Result<Node, Failure> {
    with_history(Node::of_chain(chain), args, out)
}

/// An unreadable history is noted; older states then come from the block log.
fn with_history(node: Node, args: &DbArgs, out: &Output) -> Result<Node, Failure> {
    let (disk, out) = (open::disk_to_read(args)?, *out);
    let node = node.with_history_on(disk, memory::of_history(args));
    Ok(node.without_unreadable(move |error| out.note(error)))
}
