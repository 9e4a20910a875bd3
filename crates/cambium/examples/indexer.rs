//! An indexer: follows the chain by its events, and keeps who holds how much of an ERC-20 token, through
//! a restart and a reorganisation. `cargo run -p cambium --example indexer`

use alloy_consensus::proofs::calculate_transaction_root;
use cambium::{
    Address, B256, BlockId, Chain, ChainError, ChainEvent, Changes, FaultyDisk, Options,
    StateError, Subscription, U256,
    chain::{Block, ChainSealer},
    keccak256,
};
use cambium_workload::{
    BlockSealer, BlockSize, TOKEN, Workload, WorkloadParams, token_balance_slot,
};
use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    sync::Arc,
};

/// Data derived from the chain up to the block `cursor`. A real indexer keeps this in a database, and stores each
/// event's changes and the cursor in one transaction.
#[derive(Clone)]
struct Index {
    cursor: BlockId,
    /// Balances by the hash of their slot: that is what changes of the state name.
    balances: HashMap<B256, U256>,
    /// Holders by the hash of their balance's slot, as logs name them.
    holders: BTreeMap<B256, Address>,
    reverted: u64,
}

impl Index {
    /// Begins with the state at the head.
    fn new(chain: &Chain) -> Result<Self, ChainError> {
        let view = chain.db().view()?;
        let slots = view.slots(&keccak256(TOKEN))?;
        Ok(Self {
            cursor: view.block(),
            balances: slots.into_iter().collect(),
            holders: BTreeMap::new(),
            reverted: 0,
        })
    }

    /// Handles all events that there are. A service would call [`Subscription::wait`] on a thread.
    fn catch_up(&mut self, chain: &Chain, events: &mut Subscription) -> Result<(), ChainError> {
        while let Some(event) = events.try_next()? {
            match event {
                ChainEvent::Committed(block) => {
                    self.name_holders(chain, block.meta.id)?;
                    self.apply(&block.changes);
                }
                ChainEvent::Reverted(block) => {
                    self.apply(&block.reverts);
                    self.reverted += 1;
                }
                ChainEvent::Finalized(block) => println!("final up to {block}"),
            }
            self.cursor = events.cursor();
        }
        Ok(())
    }

    /// Takes the token's slots: their values after a block that was committed, or before one that was
    /// reverted.
    fn apply(&mut self, changes: &Changes) {
        let token = keccak256(TOKEN);
        let of_token = changes.accounts().iter().filter(|it| it.path == token);
        for (slot, value) in of_token.flat_map(|account| &account.slots) {
            self.balances.insert(*slot, *value);
        }
    }

    /// Learns addresses from the `Transfer` logs of a block.
    fn name_holders(&mut self, chain: &Chain, block: BlockId) -> Result<(), ChainError> {
        let transfer = keccak256("Transfer(address,address,uint256)");
        for receipt in chain.outcome_of(block)?.receipts {
            let logs = receipt.logs().iter().filter(|log| log.address == TOKEN);
            for log in logs.filter(|log| log.topics().first() == Some(&transfer)) {
                for topic in log.topics().iter().skip(1) {
                    let holder = Address::from_word(*topic);
                    let slot = keccak256(token_balance_slot(&holder));
                    self.holders.insert(slot, holder);
                }
            }
        }
        Ok(())
    }

    /// Compares the index with the state at the head.
    fn check(&self, chain: &Chain) -> Result<(), StateError> {
        let view = chain.db().view()?;
        assert_eq!(self.cursor, view.block());
        for (slot, holder) in &self.holders {
            let balance = view.slot(&keccak256(TOKEN), slot)?;
            assert_eq!(self.balances[slot], balance, "tokens of {holder}");
        }
        Ok(())
    }
}

/// Builds another branch: the same blocks up to `fork`, then one with fewer transfers, then empty ones.
struct OtherBranch<'a> {
    chain: &'a Chain,
    fork: u64,
}

impl BlockSealer for OtherBranch<'_> {
    type Error = ChainError;

    fn seal(&mut self, mut draft: Block) -> Result<Block, ChainError> {
        let number = draft.header.number;
        if number <= self.fork {
            return self.chain.block(number);
        }
        let transfers = if number == self.fork + 1 { 3 } else { 0 };
        draft.body.transactions.truncate(transfers);
        draft.header.transactions_root = calculate_transaction_root(&draft.body.transactions);
        ChainSealer(self.chain).seal(draft)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let transfers = |blocks| WorkloadParams {
        accounts: 40,
        senders: Some(8),
        blocks,
        block_size: BlockSize::Transactions(10),
        erc20_percent: 100,
        ..WorkloadParams::default()
    };
    let workload = Workload::new(transfers(6))?;
    // A disk in memory; `StdDisk::new("directory")` is one of files.
    let disk = Arc::new(FaultyDisk::new(1));
    let chain = workload.init(disk, Options::default(), &mut |_| {})?;
    let genesis = chain.block(0)?.header;

    let mut index = Index::new(&chain)?;
    let mut events = chain.db().subscribe(index.cursor);
    workload.generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()))?;
    index.catch_up(&chain, &mut events)?;
    index.check(&chain)?;
    println!("{}: {} holders", index.cursor, index.holders.len());

    // The indexer is away while another branch becomes longer, and a block of it final.
    drop(events);
    let fork = 3;
    let mut other = OtherBranch {
        chain: &chain,
        fork,
    };
    Workload::new(transfers(7))?.generate(&genesis, &mut other, |_| Ok(()))?;
    let head = chain.db().head();
    chain.set_canonical(
        head.hash,
        None,
        chain.db().block_id(fork)?.map(|id| id.hash),
    )?;

    let mut events = chain.db().subscribe(index.cursor);
    index.catch_up(&chain, &mut events)?;
    index.check(&chain)?;
    println!("{}: {} blocks were reverted", index.cursor, index.reverted);
    assert_eq!(index.cursor, head);
    assert_eq!(index.reverted, 3);
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("no error");
}
