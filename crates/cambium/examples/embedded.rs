//! An embedded node: the program executes its own transactions on revm, commits a block for each
//! batch of them, and reads the state at any block, also after a restart.
//! `cargo run -p cambium --example embedded [DIRECTORY]`

use cambium::revm::{
    Context, ExecuteCommitEvm, MainBuilder, MainContext,
    context::{BlockEnv, TxEnv},
    primitives::TxKind,
};
use cambium::{
    Account, Address, B256, BlockId, BlockMeta, Bytes, Db, EvmSession, Loader, Options, StdDisk,
    U256, keccak256,
};
use std::{env, error::Error, path::Path, sync::Arc};

const ALICE: Address = Address::repeat_byte(0xa1);
const COUNTER: Address = Address::repeat_byte(0xc0);
/// `PUSH0 SLOAD PUSH1 1 ADD PUSH0 SSTORE STOP`: adds one to slot 0 at each call.
const COUNTER_CODE: &[u8] = &[0x5f, 0x54, 0x60, 1, 0x01, 0x5f, 0x55, 0x00];

/// Opens the node's database, or makes it.
fn open(directory: &Path) -> Result<Db, Box<dyn Error>> {
    let (disk, options) = (Arc::new(StdDisk::new(directory)), Options::default());
    if Db::exists(&*disk)? {
        let (db, recovery) = Db::open(disk, options)?;
        println!("opened at {}: {recovery:?}", db.head());
        return Ok(db);
    }
    let mut loader = Loader::new(disk, options)?;
    let code_hash = keccak256(COUNTER_CODE);
    loader.code(code_hash, COUNTER_CODE)?;
    let contract = Account {
        code_hash,
        ..Account::default()
    };
    loader.account(keccak256(COUNTER), &contract, [])?;
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
    Ok(loaded.create(genesis, vec![])?)
}

/// Executes `calls` calls of the counter in a block on the head. When it returns, the block is durable.
fn build_block(db: &Db, calls: u64) -> Result<BlockId, Box<dyn Error>> {
    let parent = db.view()?;
    let (id, nonce) = (
        parent.block(),
        parent.account_at(ALICE)?.map_or(0, |alice| alice.nonce),
    );
    let block = BlockEnv {
        number: U256::from(id.number + 1),
        timestamp: U256::from(1_700_000_000 + 12 * (id.number + 1)),
        ..BlockEnv::default()
    };
    let mut evm = Context::mainnet()
        .with_db(EvmSession::new(parent))
        .with_block(block)
        .build_mainnet();
    for call in 0..calls {
        let transaction = TxEnv::builder()
            .caller(ALICE)
            .kind(TxKind::Call(COUNTER))
            .gas_limit(100_000)
            .nonce(nonce + call)
            .build();
        let transaction = transaction.map_err(|error| format!("{error:?}"))?;
        let done = evm.transact_commit(transaction)?;
        assert!(done.is_success(), "{done:?}");
    }
    let staged = evm.ctx.journaled_state.database.finish()?;
    let state_root = staged.root();
    let sealed = staged.seal(BlockMeta {
        id: BlockId::new(id.number + 1, keccak256([id.hash, state_root].concat())),
        parent: id.hash,
        state_root,
        body: Bytes::from(calls.to_be_bytes()),
    })?;
    Ok(sealed.commit()?.id())
}

fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let db = open(directory)?;
    let before = db.view()?.slot_at(COUNTER, U256::ZERO)?;
    for calls in 1..=3 {
        let id = build_block(&db, calls)?;
        let root = db.view()?.state_root();
        println!("block {id} with {calls} calls: state root {root}");
    }
    let head = db.head();
    for number in head.number - 3..=head.number {
        let counted = db.view_at(number)?.slot_at(COUNTER, U256::ZERO)?;
        println!("counted after block {number}: {counted}");
    }
    assert_eq!(
        db.view()?.slot_at(COUNTER, U256::ZERO)?,
        before + U256::from(6)
    );
    db.close()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1) {
        Some(directory) => run(Path::new(&directory)),
        None => {
            let directory = tempfile::tempdir()?;
            run(directory.path())?;
            // As after a restart.
            run(directory.path())
        }
    }
}

#[test]
fn it_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    for runs in 1..=2u64 {
        run(directory.path()).expect("no error");
        let db = open(directory.path()).expect("a database");
        assert_eq!(db.head().number, 3 * runs);
        let counted = db.view().and_then(|view| view.slot_at(COUNTER, U256::ZERO));
        assert_eq!(counted.expect("readable"), U256::from(6 * runs));
    }
}
