//! A rollup's node: revm executes the blocks, two of them compete, the better one becomes the head, and
//! is finalized. `cargo run -p cambium --example rollup`

use cambium::revm::{
    Context, ExecuteCommitEvm, MainBuilder, MainContext, context::TxEnv, primitives::TxKind,
};
use cambium::{
    Account, Address, B256, BlockId, BlockMeta, Bytes, Db, EvmSession, FaultyDisk, Loader, Options,
    StateError, U256, keccak256,
};
use std::{error::Error, sync::Arc};

const ALICE: Address = Address::repeat_byte(0xa1);
const BOB: Address = Address::repeat_byte(0xb0);

fn payment(nonce: u64, wei: u64) -> Result<TxEnv, Box<dyn Error>> {
    let transaction = TxEnv::builder()
        .caller(ALICE)
        .kind(TxKind::Call(BOB))
        .value(U256::from(wei))
        .gas_limit(21_000)
        .nonce(nonce)
        .build();
    transaction.map_err(|error| format!("{error:?}").into())
}

/// Executes transactions on the state after `parent`, and stores the block. The head stays where it is.
fn insert(db: &Db, parent: BlockId, transactions: &[TxEnv]) -> Result<BlockId, Box<dyn Error>> {
    let session = EvmSession::new(db.view_of(parent)?);
    let mut evm = Context::mainnet().with_db(session).build_mainnet();
    for transaction in transactions {
        let done = evm.transact_commit(transaction.clone())?;
        assert!(done.is_success(), "{done:?}");
    }
    let staged = evm.ctx.journaled_state.database.finish()?;
    let state_root = staged.root();
    // A real header would commit to both.
    let hash = keccak256([parent.hash, state_root].concat());
    let block = BlockMeta {
        id: BlockId::new(parent.number + 1, hash),
        parent: parent.hash,
        state_root,
        body: Bytes::from_static(b"the transactions, in the rollup's encoding"),
    };
    Ok(staged.seal(block)?.commit_side_branch()?.id())
}

fn bob_has(db: &Db) -> Result<U256, StateError> {
    let account = db.view()?.account_at(BOB)?;
    Ok(account.map_or(U256::ZERO, |account| account.balance))
}

fn main() -> Result<(), Box<dyn Error>> {
    // A disk in memory; `StdDisk::new("directory")` is one of files.
    let mut loader = Loader::new(Arc::new(FaultyDisk::new(1)), Options::default())?;
    let rich = Account {
        balance: U256::from(10).pow(U256::from(18)),
        ..Account::default()
    };
    loader.account(keccak256(ALICE), &rich, [])?;
    let loaded = loader.finish(&mut |_| {})?;
    let genesis = BlockMeta {
        id: BlockId::new(0, keccak256("genesis")),
        parent: B256::ZERO,
        state_root: loaded.root(),
        body: Bytes::new(),
    };
    let db = loaded.create(genesis.clone(), vec![])?;

    // Two blocks on the first one. Neither is the head yet, and both can be built upon.
    let one = insert(&db, genesis.id, &[payment(0, 1)?])?;
    let two = insert(&db, genesis.id, &[payment(0, 2)?, payment(1, 3)?])?;
    let next = insert(&db, two, &[payment(2, 4)?])?;
    assert_eq!(db.head(), genesis.id);

    db.set_canonical(one, None, None)?;
    println!("head {}: Bob has {} wei", db.head(), bob_has(&db)?);
    assert_eq!(bob_has(&db)?, U256::from(1));

    // The other branch wins, and its first block is final: block `one` is removed for good.
    db.set_canonical(next, Some(two), Some(two))?;
    println!("head {}: Bob has {} wei", db.head(), bob_has(&db)?);
    assert_eq!(bob_has(&db)?, U256::from(9));
    assert!(!db.has(one)?);
    let refused = insert(&db, genesis.id, &[payment(0, 5)?]).unwrap_err();
    println!("refused: {refused}");
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("no error");
}
