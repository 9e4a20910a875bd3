//! How the executors by access list read the state.

/// How the state is read for parallel execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListReads {
    /// Use the pre-state values that came with the block: transactions read only code from the
    /// state. The values are verified against the state meanwhile. Without them as
    /// [`ListReads::Keys`].
    Values,
    /// Read all keys of the list in large batches: half of the threads begin with them.
    Keys,
    /// Read the keys that the list says are changed while transactions run. Transactions read all
    /// other keys themselves.
    Changes,
}
