//! What the explorer page asks besides Ethereum's own methods. Numbers are JSON numbers where they are counts, bytes or block numbers;
//! hashes, keys and values are in hex.
//!
//! ```text
//!   figures   everything that /metrics has
//!   pages     the state's pages as a map, its layers, the way of a read
//!   blocks    what a block changed, and the schedule that its transactions allow
//!   line      the blocks that changed an account or a slot
//! ```

mod figures;
mod pages;
mod blocks;
mod line;

use crate::table::Methods;
use cambium_metrics::WeakRegistry;

impl Methods {
    /// Adds what the explorer page asks: `cambium_*`. The figures are those of `registry`.
    #[must_use]
    pub fn with_explorer(self, registry: WeakRegistry) -> Self {
        let methods = figures::add(self, registry);
        line::add(blocks::add(pages::add(methods)))
    }
}
