//! Recognition of genesis files of public chains, some of which circulate without a `config`.
//!
//! Such a file is recognized by the hash of its genesis block under the chain's rules, so that no
//! other chain can be mistaken for it.

use super::Genesis;
use crate::ChainSpec;
use alloy_primitives::{B256, b256};

/// The rules of the public chain with this genesis block.
pub(super) fn spec_of(genesis: &Genesis, state_root: B256) -> Option<ChainSpec> {
    [
        (
            ChainSpec::mainnet(),
            b256!("d4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3"),
        ),
        (
            ChainSpec::sepolia(),
            b256!("25a5cc106eea7138acab33231d7160d69cb777ee0c2c553fcddf5138993e6dd9"),
        ),
        (
            ChainSpec::holesky(),
            b256!("b5f7f912443c940f21fd611f12828d75b534364ed9e95ca4e307729a4661bde4"),
        ),
    ]
    .into_iter()
    .find(|(spec, hash)| genesis.header(spec, state_root).hash_slow() == *hash)
    .map(|(spec, _)| spec)
}
