//! The genesis state of a workload, and shards of it.

use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes};
use cambium_chain::{ChainSpec, DraftAttributes, GenesisPart};
use cambium_cluster::{Shard, ShardLimits, ShardLoader, ShardRange, top_nodes};
use cambium_primitives::{Changes, Path};
use cambium_testkit::genesis_state;
use cambium_trie::{Batch, NoResolve, PartialTrie, commit};
use cambium_workload::{Workload, WorkloadParams};
use std::{error::Error, sync::Arc};

/// A workload with its genesis state.
pub(super) struct Genesis {
    pub(super) workload: Workload,
    pub(super) spec: ChainSpec,
    pub(super) header: Header,
    changes: Changes,
    codes: Vec<(B256, Bytes)>,
    /// The nodes above 1 to 16 shards.
    top: Vec<Bytes>,
}

impl Genesis {
    pub(super) fn new(params: WorkloadParams) -> Result<Self, Box<dyn Error>> {
        let workload = Workload::new(params)?;
        let mut parts = Vec::new();
        workload.for_each_part(|part| {
            match part {
                GenesisPart::Account(address, account) => parts.push((address, account)),
                GenesisPart::Slots(address, slots) => {
                    let account = parts.last_mut().filter(|(last, _)| *last == address);
                    let (_, account) = account.ok_or("slots of an account that is not there")?;
                    account.storage.extend(slots);
                }
            }
            Ok::<_, Box<dyn Error>>(())
        })?;
        let (changes, codes) = genesis_state(parts);
        let mut trie = PartialTrie::new(Path::EMPTY);
        trie.apply(changes.accounts(), &mut NoResolve)?;
        commit(&mut [&mut trie], &mut Batch::new());
        let spec = workload.params().spec();
        let root = trie.state_root().unwrap_or_default();
        let header = workload.genesis().header(&spec, root);
        Ok(Self {
            workload,
            spec,
            header,
            changes,
            codes,
            top: top_nodes(&trie, 1),
        })
    }

    /// Paths of all accounts, in order.
    pub(super) fn paths(&self) -> impl Iterator<Item = B256> {
        self.changes.accounts().iter().map(|change| change.path)
    }

    /// The shard of a division into at most 16.
    pub(super) fn shard(&self, range: ShardRange) -> Result<Arc<Shard>, Box<dyn Error>> {
        let mut loader = ShardLoader::new(range);
        loader.put(self.changes.accounts())?;
        for (_, code) in &self.codes {
            loader.put_code(code.clone());
        }
        let shard = loader.finish(&self.header, &self.top, ShardLimits::default())?;
        Ok(Arc::new(shard))
    }

    /// What the next block after a header has.
    pub(super) fn attributes(&self, parent: &Header) -> DraftAttributes {
        DraftAttributes {
            timestamp: parent.timestamp + 12,
            beneficiary: parent.beneficiary,
            gas_limit: parent.gas_limit,
            ..DraftAttributes::default()
        }
    }
}
