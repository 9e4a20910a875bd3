//! A block that is executed from its witness, without a database.

use crate::{
    input::Input,
    links::{linked, unlinked},
};
use alloy_consensus::{
    Header,
    proofs::{calculate_ommers_root, calculate_transaction_root, calculate_withdrawals_root},
};
use alloy_primitives::{Bytes, keccak256};
use alloy_rlp::{Decodable, Encodable};
use cambium_chain::{
    Block, BlockFault, BlockWitness, Chain, ChainSealer, HeaderError, StatelessError,
    StatelessReport, StatelessRules, VerifyError,
};
use cambium_disk::FaultyDisk;
use cambium_state::Options;
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use std::sync::{Arc, OnceLock};

/// A small chain, and the witness of its last block.
struct Template {
    chain: Chain,
    witness: BlockWitness,
    parent: Header,
    /// Nodes of the witness with marks in place of hashes.
    nodes: Vec<Vec<u8>>,
}

impl Template {
    fn rules(&self) -> StatelessRules<'_> {
        StatelessRules::of(self.chain.spec())
    }
}

fn template() -> &'static Template {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let params = WorkloadParams {
            accounts: 12,
            senders: Some(6),
            holders: Some(8),
            pools: 1,
            blocks: 2,
            block_size: BlockSize::Transactions(3),
            erc20_percent: 60,
            ..WorkloadParams::default()
        };
        let workload = Workload::new(params).expect("a small chain");
        let options = Options {
            memory_bytes: 8 << 20,
            ..Options::default()
        };
        let disk = Arc::new(FaultyDisk::new(1));
        let chain = workload.init(disk, options, &mut |_| {});
        let chain = chain.expect("a disk that works");
        let genesis = chain.block(0).expect("it is there").header;
        let made = workload.generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()));
        let head = made.expect("a disk that works");
        let witness = chain.witness(head.number).expect("the head");
        let parent = chain.block(head.number - 1).expect("it is there").header;
        let nodes = unlinked(parent.state_root, &witness.witness.state);
        assert_eq!(nodes.len(), witness.witness.state.len());
        Template {
            chain,
            witness,
            parent,
            nodes,
        }
    })
}

/// Input: a byte whose bit 0 leaves the block's header unchanged; then edits of the witness of a
/// valid block, each with the kind of object (node, code, parent's header, block, fields of its
/// header, its transactions), which one, the kind of edit, the offset, and bytes.
///
/// Nodes are linked again, the parent's header gets their root, and the block's header gets the
/// hash of the parent, the transactions root and the results of execution. A block that is valid by
/// its witness is also valid on the database, if that has its parent.
pub fn stateless(bytes: &[u8]) {
    let template = template();
    let mut input = Input::new(bytes);
    let mends = input.u8() & 1 == 0;
    let mut made = template.witness.clone();
    let mut nodes = template.nodes.clone();
    let mut block = Block::decode(&mut &made.block[..]).expect("a good block");
    let mut raw_block = None;
    for _ in 0..8 {
        if input.is_empty() {
            break;
        }
        let (of, which) = (input.u8() % 6, usize::from(input.u8()));
        match of {
            0 => edit_one(&mut nodes, which, &mut input),
            1 => edit_code(&mut made.witness.codes, &mut nodes, which, &mut input),
            2 => edit_bytes(&mut made.witness.headers, which, &mut input),
            3 => {
                let mut one = [made.block.clone()];
                edit_bytes(&mut one, 0, &mut input);
                let [edited] = one;
                raw_block = Some(edited);
            }
            4 => edit_header(&mut block.header, which, &mut input),
            _ => edit_transactions(&mut block, which),
        }
    }
    made.witness.state = linked(nodes);
    let root = made.witness.state.first().map(keccak256);
    if let Some(rlp) = made.witness.headers.first_mut()
        && let Ok(mut parent) = Header::decode(&mut &rlp[..])
    {
        parent.state_root = root.unwrap_or(parent.state_root);
        *rlp = alloy_rlp::encode(&parent).into();
        block.header.parent_hash = keccak256(&rlp[..]);
    }
    if let Some(raw) = raw_block {
        made.block = raw;
        let executed = made.execute(&template.rules());
        return check(template, &made, &executed);
    }
    if mends {
        block.header.transactions_root = calculate_transaction_root(&block.body.transactions);
        block.header.ommers_hash = calculate_ommers_root(&block.body.ommers);
        let withdrawals = block.body.withdrawals.as_ref();
        block.header.withdrawals_root =
            withdrawals.map(|withdrawals| calculate_withdrawals_root(withdrawals));
    }
    for _ in 0..8 {
        made.block = alloy_rlp::encode(&block).into();
        let executed = made.execute(&template.rules());
        if !mends || !mend(&mut block.header, &executed) {
            return check(template, &made, &executed);
        }
    }
}

/// Corrects a header if a wrong result of execution in it is the only fault.
fn mend(header: &mut Header, executed: &Result<StatelessReport, StatelessError>) -> bool {
    let Err(StatelessError::Invalid { fault, .. }) = executed else {
        return false;
    };
    match **fault {
        BlockFault::Header(HeaderError::BaseFee { expected, .. }) => {
            header.base_fee_per_gas = Some(expected);
        }
        BlockFault::Header(HeaderError::ExcessBlobGas { expected, .. }) => {
            header.excess_blob_gas = Some(expected);
        }
        BlockFault::Verify(VerifyError::GasUsed { expected, .. }) => header.gas_used = expected,
        BlockFault::Verify(VerifyError::ReceiptsRoot { expected, .. }) => {
            header.receipts_root = expected;
        }
        BlockFault::Verify(VerifyError::RequestsHash { expected, .. }) => {
            header.requests_hash = Some(expected);
        }
        BlockFault::Verify(VerifyError::StateRoot { expected, .. }) => {
            header.state_root = expected;
        }
        _ => return false,
    }
    true
}

fn check(
    template: &Template,
    made: &BlockWitness,
    executed: &Result<StatelessReport, StatelessError>,
) {
    let Ok(block) = alloy_rlp::decode_exact::<Block>(&made.block[..]) else {
        return assert!(executed.is_err(), "no block is executed");
    };
    let is_on_parent = block.header.parent_hash == template.parent.hash_slow();
    if let Ok(report) = executed {
        assert_eq!(report.id.hash, block.header.hash_slow());
        assert_eq!(report.state_root, block.header.state_root);
        assert!(!is_on_parent || report.pre_root == template.parent.state_root);
    }
    let is_told = match executed {
        Ok(_) => true,
        Err(StatelessError::Invalid { .. }) => false,
        // A gap in the witness does not show whether the block is valid.
        Err(_) => return,
    };
    let id = template.chain.db().head();
    if !is_on_parent || block.header.hash_slow() == id.hash {
        return;
    }
    let mut again = Vec::new();
    block.encode(&mut again);
    if again != made.block {
        return assert!(executed.is_err(), "another encoding of a block");
    }
    let parent = cambium_primitives::BlockId::new(template.parent.number, block.header.parent_hash);
    let prepared = template.chain.prepare(made.block.clone(), None);
    let on_chain = prepared.and_then(|prepared| template.chain.execute(prepared, parent));
    assert_eq!(
        on_chain.is_ok(),
        is_told,
        "{executed:?}, and on the database {:?}",
        on_chain.err().map(|error| error.to_string())
    );
}

fn edit(bytes: &mut Vec<u8>, input: &mut Input<'_>) {
    let (how, offset) = (input.u8(), usize::from(input.u16()));
    let piece = input.piece();
    let at = offset.min(bytes.len());
    let end = (at + piece.len()).min(bytes.len());
    match how % 4 {
        0 => _ = bytes.splice(at..end, piece.iter().copied()),
        1 => _ = bytes.splice(at..at, piece.iter().copied()),
        2 => _ = bytes.splice(at..end, []),
        _ => *bytes = piece.to_vec(),
    }
}

fn edit_one(all: &mut [Vec<u8>], which: usize, input: &mut Input<'_>) {
    let count = all.len().max(1);
    if let Some(one) = all.get_mut(which % count) {
        edit(one, input);
    }
}

fn edit_bytes(all: &mut [Bytes], which: usize, input: &mut Input<'_>) {
    let count = all.len().max(1);
    if let Some(one) = all.get_mut(which % count) {
        let mut bytes = one.to_vec();
        edit(&mut bytes, input);
        *one = bytes.into();
    }
}

/// Edits a code, and replaces its hash in accounts.
fn edit_code(codes: &mut [Bytes], nodes: &mut [Vec<u8>], which: usize, input: &mut Input<'_>) {
    let before: Vec<_> = codes.iter().map(keccak256).collect();
    edit_bytes(codes, which, input);
    for (before, code) in before.into_iter().zip(codes) {
        let after = keccak256(code);
        for node in nodes.iter_mut() {
            for at in 0..node.len().saturating_sub(31) {
                if node[at..at + 32] == before[..] {
                    node[at..at + 32].copy_from_slice(after.as_slice());
                }
            }
        }
    }
}

fn edit_header(header: &mut Header, which: usize, input: &mut Input<'_>) {
    let value = input.u64();
    match which % 10 {
        0 => header.gas_limit ^= value & 0xffff,
        1 => header.timestamp ^= value & 0xff,
        2 => header.number ^= value & 3,
        3 => header.beneficiary.0[0] ^= value as u8,
        4 => header.extra_data = input.piece().to_vec().into(),
        5 => header.parent_beacon_block_root = Some(keccak256(value.to_le_bytes())),
        6 => header.mix_hash = keccak256(value.to_le_bytes()),
        7 => header.gas_used ^= value,
        8 => header.blob_gas_used = Some(value),
        _ => header.requests_hash = None,
    }
}

fn edit_transactions(block: &mut Block, which: usize) {
    let transactions = &mut block.body.transactions;
    let count = transactions.len();
    if count == 0 {
        return;
    }
    match which & 3 {
        0 => _ = transactions.remove(which / 4 % count),
        1 => transactions.swap(0, which / 4 % count),
        2 => transactions.push(transactions[which / 4 % count].clone()),
        _ => transactions.clear(),
    }
}

/// Returns the bytes of one edit, for seeds.
pub(crate) fn edit_of(of: u8, which: u8, how: u8, offset: u16, piece: &[u8]) -> Vec<u8> {
    let mut out = crate::input::Output::default();
    out.u8(0).u8(of).u8(which).u8(how).u16(offset).piece(piece);
    out.0
}
