//! Genesis, headers, fork rules, chain files, the import pipeline and the workload generator.

mod files;
mod spec;

pub use files::{
    BLOCK_BYTES_MAX, Block, BlockSource, ChainReader, ChainWriter, ERA1_BLOCKS_MAX, Era1Reader,
    FileError, FileKind, Place, Progress, RawBlock, Transaction,
};
pub use spec::{BPO_FORKS, BlobSchedule, ChainSpec, Fork, MAINNET_DEPOSIT_CONTRACT};
