//! Limits of a pool.

use std::time::Duration;

/// What a pool holds at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Most transactions.
    pub transactions: usize,
    /// Most transactions of one sender.
    pub of_sender: usize,
    /// Most bytes of all transactions with their sidecars.
    pub bytes: usize,
    /// Most bytes of one transaction without its sidecar.
    pub transaction_bytes: usize,
    /// By how many percent the fees of a replacement have to be higher.
    pub replacement_percent: u8,
    /// Longest time that a transaction waits.
    pub lifetime: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            transactions: 4096,
            of_sender: 64,
            bytes: 128 << 20,
            transaction_bytes: 128 << 10,
            replacement_percent: 10,
            lifetime: Duration::from_secs(3 * 3600),
        }
    }
}
