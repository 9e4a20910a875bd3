//! A database of blocks with random transactions and logs, its index, and a naive model: all blocks.

use alloy_consensus::{Eip658Value, ReceiptEnvelope, ReceiptWithBloom};
use alloy_primitives::{Address, B256, Bytes, Log, LogData, U256, keccak256};
use cambium_index::{ChainIndex, IndexError, IndexOptions, LogFilter, StoredBody, pack_receipts};
use cambium_primitives::{BlockId, BlockNumber, Changes};
use cambium_state::{BlockMeta, Db, FaultyDisk, Loader, Options};
use cambium_testkit::{
    Random, TINY_FILES,
    plain::{path, put},
};
use std::{collections::HashMap, sync::Arc};

/// Memory so little that a few blocks fill it, and data files that a few blocks fill.
pub(crate) const LITTLE: IndexOptions = IndexOptions {
    memory_bytes: 24 << 10,
    data_file_bytes: 8 << 10,
};

pub(crate) fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        files: TINY_FILES,
        unfinalized_blocks: 64,
        ..Options::default()
    }
}

/// A log: its address and its topics.
type PlainLog = (Address, Vec<B256>);

/// A block in the model.
#[derive(Clone, Debug)]
pub(crate) struct ModelBlock {
    pub id: BlockId,
    pub parent: B256,
    pub body: Bytes,
    pub transactions: Vec<B256>,
    /// `None` if the block has no receipts.
    pub logs: Option<Vec<PlainLog>>,
}

pub(crate) struct World {
    pub disk: FaultyDisk,
    pub db: Db,
    pub index: ChainIndex,
    /// Every block there ever was.
    pub known: HashMap<B256, ModelBlock>,
    pub random: Random,
    pub options: Options,
    made: u64,
}

fn rlp_list(items: &[Vec<u8>]) -> Vec<u8> {
    let payload = items.concat();
    let mut out = Vec::new();
    let header = alloy_rlp::Header {
        list: true,
        payload_length: payload.len(),
    };
    header.encode(&mut out);
    out.extend_from_slice(&payload);
    out
}

fn rlp_string(bytes: &[u8]) -> Vec<u8> {
    alloy_rlp::encode(bytes)
}

/// One of few addresses, and topics that all blocks share.
pub(crate) fn address(random: &mut Random) -> Address {
    Address::from_word(keccak256(random.below(12).to_le_bytes()))
}

pub(crate) fn topic(random: &mut Random) -> B256 {
    match random.below(100) {
        // Small numbers as well, as indexed integers are.
        0..50 => B256::from(U256::from(random.below(20))),
        // And some that hardly any block has.
        50..54 => keccak256(random.below(500).to_be_bytes()),
        _ => keccak256(random.below(20).to_le_bytes()),
    }
}

/// A block with these transactions and logs.
fn block(random: &mut Random, number: u64, parent: B256, salt: u64) -> ModelBlock {
    let header = rlp_list(&[
        rlp_string(parent.as_slice()),
        alloy_rlp::encode(number),
        alloy_rlp::encode(salt),
    ]);
    let count = if number == 0 { 0 } else { random.below(6) };
    let (mut transactions, mut encoded, mut receipts) = (Vec::new(), Vec::new(), Vec::new());
    let mut logs = Vec::new();
    for at in 0..count {
        let unique = alloy_rlp::encode(salt * 64 + at);
        let legacy = random.percent(50);
        let inner = rlp_list(&[unique, vec![0x01]]);
        let transaction = match legacy {
            true => inner,
            false => [&[2][..], &inner].concat(),
        };
        transactions.push(keccak256(&transaction));
        encoded.push(match legacy {
            true => transaction,
            false => rlp_string(&transaction),
        });
        let made = (0..random.below(4)).map(|_| {
            let topics = (0..random.below(5)).map(|_| topic(random)).collect();
            (address(random), topics)
        });
        let made: Vec<PlainLog> = made.collect();
        let receipt = ReceiptWithBloom::from(alloy_consensus::Receipt {
            status: Eip658Value::Eip658(true),
            cumulative_gas_used: at,
            logs: made
                .iter()
                .map(|(address, topics)| Log {
                    address: *address,
                    data: LogData::new_unchecked(topics.clone(), Bytes::from_static(b"data")),
                })
                .collect(),
        });
        receipts.push(match legacy {
            true => ReceiptEnvelope::Legacy(receipt),
            false => ReceiptEnvelope::Eip1559(receipt),
        });
        logs.extend(made);
    }
    let id = BlockId::new(number, keccak256(&header));
    let rlp = rlp_list(&[header, rlp_list(&encoded), rlp_list(&[])]);
    let list = match random.percent(30) {
        true => rlp_list(&[rlp_string(b"list")]),
        false => Vec::new(),
    };
    let has_receipts = count > 0 && random.percent(90);
    let packed = has_receipts.then(|| {
        let mut rlp = Vec::new();
        alloy_rlp::encode_list(&receipts, &mut rlp);
        pack_receipts(&rlp)
    });
    let difficulty = U256::from(number);
    ModelBlock {
        id,
        parent,
        body: StoredBody::encode(difficulty, &rlp, &list, packed.as_deref(), None),
        transactions,
        logs: (has_receipts || count == 0).then_some(logs),
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, options())
    }

    pub(crate) fn with(seed: u64, options: Options) -> Self {
        Self::with_index(seed, options, LITTLE)
    }

    /// With an index of given sizes.
    pub(crate) fn with_index(seed: u64, options: Options, of_index: IndexOptions) -> Self {
        let (disk, mut random) = (FaultyDisk::new(seed), Random::new(seed));
        let shared = Arc::new(disk.clone());
        let loaded = Loader::new(shared.clone(), options).unwrap();
        let loaded = loaded.finish(&mut |_| {}).unwrap();
        let genesis = block(&mut random, 0, B256::ZERO, seed << 20);
        let db = loaded
            .create(
                BlockMeta {
                    id: genesis.id,
                    parent: B256::ZERO,
                    state_root: alloy_trie::EMPTY_ROOT_HASH,
                    body: genesis.body.clone(),
                },
                vec![],
            )
            .unwrap();
        let index = ChainIndex::create(shared, &db, 0, of_index).unwrap();
        Self {
            disk,
            db,
            index,
            known: HashMap::from([(genesis.id.hash, genesis)]),
            random,
            options,
            made: seed << 20,
        }
    }

    /// Commits a block on `parent`, as the head or not.
    pub(crate) fn block_on(&mut self, parent: BlockId, becomes_head: bool) -> BlockId {
        self.made += 1;
        let made = block(&mut self.random, parent.number + 1, parent.hash, self.made);
        let view = self.db.view_of(parent).unwrap();
        let change = put(path(self.random.below(40)), self.made);
        let changes = Changes::new(vec![change]);
        let staged = view.session().finish(changes, vec![]).unwrap();
        let meta = BlockMeta {
            id: made.id,
            parent: parent.hash,
            state_root: staged.root(),
            body: made.body.clone(),
        };
        let sealed = staged.seal(meta).unwrap();
        match becomes_head {
            true => drop(sealed.commit().unwrap()),
            false => drop(sealed.commit_side_branch().unwrap()),
        }
        let id = made.id;
        self.known.insert(id.hash, made);
        id
    }

    pub(crate) fn block(&mut self) -> BlockId {
        self.block_on(self.db.head(), true)
    }

    pub(crate) fn blocks(&mut self, count: std::ops::Range<u64>) {
        for _ in count {
            self.block();
        }
    }

    pub(crate) fn catch_up(&self) -> Result<(), IndexError> {
        let caught = self.index.catch_up(&self.db, None, &mut |_| true)?;
        assert!(caught);
        Ok(())
    }

    /// A branch that leaves the chain up to `depth` blocks below the head, and is longer or shorter.
    pub(crate) fn reorganize(&mut self, depth: u64) {
        let head = self.db.head();
        let lowest = head.number.saturating_sub(depth);
        let fork = lowest + self.random.below(head.number - lowest + 1);
        let fork = self.db.block_id(fork).unwrap().unwrap();
        let len = self.random.below(depth + 3);
        let mut tip = fork;
        for _ in 0..len {
            tip = self.block_on(tip, false);
        }
        self.db.set_head(tip).unwrap();
    }

    /// Opens everything again, after a crash or an orderly end.
    pub(crate) fn reopen(mut self, crash: bool) -> Self {
        let disk = match crash {
            true => self.disk.crash(),
            false => self.disk.clone(),
        };
        drop(self.index);
        drop(self.db);
        let shared = Arc::new(disk.clone());
        let (db, _) = Db::open(shared.clone(), self.options).unwrap();
        self.index = ChainIndex::open(shared, &db, LITTLE).unwrap();
        self.db = db;
        self.disk = disk;
        self
    }

    /// The canonical chain by the model.
    pub(crate) fn chain(&self) -> Vec<&ModelBlock> {
        let mut chain = Vec::new();
        let mut next = self.known.get(&self.db.head().hash);
        while let Some(block) = next {
            chain.push(block);
            next = self.known.get(&block.parent);
        }
        chain.reverse();
        chain
    }

    /// Compares what `index` finds of every hash with the model.
    pub(crate) fn compare(&mut self, index: &ChainIndex) {
        let chain = self.chain();
        let canonical: HashMap<B256, &ModelBlock> =
            chain.iter().map(|block| (block.id.hash, *block)).collect();
        for block in self.known.values() {
            let is_canonical = canonical.contains_key(&block.id.hash);
            let found = index.find(&self.db, block.id.hash).unwrap();
            assert_eq!(found.is_some(), is_canonical, "block {}", block.id);
            if let Some(found) = found {
                assert_eq!(found.transaction, None);
                assert_eq!(found.block.id, block.id);
                assert_eq!(found.block.body, StoredBody::decode(&block.body).unwrap());
            }
            for (at, hash) in block.transactions.iter().enumerate() {
                let found = index.find(&self.db, *hash).unwrap();
                assert_eq!(
                    found.is_some(),
                    is_canonical,
                    "transaction {at} of {}",
                    block.id
                );
                if let Some(found) = found {
                    assert_eq!((found.block.id, found.transaction), (block.id, Some(at)));
                }
            }
        }
        for block in &chain {
            let found = index.block(&self.db, block.id.number).unwrap().unwrap();
            assert_eq!(found.id, block.id);
        }
        let above = self.db.head().number + 1;
        assert_eq!(index.block(&self.db, above).unwrap(), None);
        assert_eq!(index.find(&self.db, keccak256(b"nothing")).unwrap(), None);
        for _ in 0..20 {
            self.compare_logs(index);
        }
    }

    /// Compares a search for random logs with the model: no block is missing, and few are too many.
    pub(crate) fn compare_logs(&mut self, index: &ChainIndex) {
        let mut random = self.random.clone();
        let mut filter = LogFilter::default();
        for _ in 0..random.below(3) {
            filter.addresses.push(address(&mut random));
        }
        for at in 0..4 {
            if random.percent(30) {
                for _ in 0..1 + random.below(2) {
                    filter.topics[at].push(topic(&mut random));
                }
            }
        }
        let head = self.db.head().number;
        let from = random.below(head + 1);
        let to = from + random.below(head + 3 - from);
        self.random = random;
        let found = index.log_blocks(&self.db, &filter, from..=to).unwrap();
        assert_eq!(found.upto, to.min(head));
        let is_any = filter == LogFilter::default();
        let (mut expected, mut possible) = (Vec::new(), Vec::new());
        for block in self.chain() {
            let number: BlockNumber = block.id.number;
            if !(from..=to).contains(&number) {
                continue;
            }
            let has = match &block.logs {
                None => true,
                Some(logs) => logs
                    .iter()
                    .any(|(address, topics)| filter.passes(address, topics)),
            };
            // Each value is somewhere in the block's logs, at its place.
            let may = match &block.logs {
                None => true,
                Some(logs) => {
                    let address = filter.addresses.is_empty()
                        || logs.iter().any(|(at, _)| filter.addresses.contains(at));
                    address
                        && filter.topics.iter().enumerate().all(|(at, asked)| {
                            asked.is_empty()
                                || logs.iter().any(|(_, topics)| {
                                    topics.get(at).is_some_and(|topic| asked.contains(topic))
                                })
                        })
                }
            };
            if has {
                expected.push(number);
            }
            if may || is_any {
                possible.push(number);
            }
        }
        assert_eq!(found.blocks, possible, "{filter:?} in {from}..={to}");
        assert!(expected.iter().all(|number| found.blocks.contains(number)));
    }
}
