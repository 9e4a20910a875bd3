//! Genesis, headers, fork rules, chain files, the import pipeline and the workload generator.

mod spec;

pub use spec::{BPO_FORKS, BlobSchedule, ChainSpec, Fork, MAINNET_DEPOSIT_CONTRACT};
