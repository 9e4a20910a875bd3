//! Generation of signed transactions.

use crate::{
    BlockSize, Spread, Workload, WorkloadParams,
    contracts::{ROUTER, SLOT_READER, TOKEN, read_call, swap_call, transfer_call},
    keys::{Random, hash},
    kind::Kind,
    spread::Chooser,
};
use alloy_consensus::{SignableTransaction, TxEip1559};
use alloy_primitives::{Address, Bytes, Signature, TxKind, U256};
use cambium_chain::Transaction;
use rayon::prelude::*;
use secp256k1::{Message, SECP256K1, SecretKey};

const GWEI: u128 = 1_000_000_000;
/// Maximum fee per gas. Above any base fee of a workload, which starts at 1 gwei and falls.
const FEE_MAX: u128 = 10 * GWEI;
const TIP: u128 = GWEI;
/// Maximum value of a payment in wei: a thousandth of an ether.
const PAYMENT_MAX: u64 = 1_000_000_000_000_000;
/// Maximum units of a token transfer.
const TOKENS_MAX: u64 = 1_000_000;
/// Maximum units that a swap puts in: a millionth of a pool's initial reserve.
const SWAP_MAX: u64 = 1_000_000_000_000_000_000;

impl Workload {
    /// The transactions of each block, from block 1 on, without end.
    pub fn transactions(&self) -> impl Iterator<Item = Vec<Transaction>> + Send + '_ {
        Stream::new(self)
    }
}

/// Iterator over the transactions of each block.
struct Stream<'a> {
    workload: &'a Workload,
    /// Next nonce of each sender.
    nonces: Vec<u64>,
    random: Random,
    /// Number of fresh receivers so far.
    fresh: u64,
}

/// Distributions for the transactions of one block.
struct Choosers {
    senders: Chooser,
    receivers: Chooser,
    /// Index of the first account that can be a receiver.
    first_receiver: u64,
    pools: Chooser,
}

impl Choosers {
    fn new(params: &WorkloadParams, random: &mut Random) -> Self {
        let (senders, spread) = (params.senders(), params.spread);
        let sender_spread = match spread {
            Spread::Hot(_) => Spread::Uniform,
            spread => spread,
        };
        let first_receiver = match spread {
            Spread::Distinct => senders,
            _ => 0,
        };
        Self {
            senders: Chooser::new(senders, sender_spread, random),
            receivers: Chooser::new(params.accounts - first_receiver, spread, random),
            first_receiver,
            pools: Chooser::new(params.pools, params.pool_spread, random),
        }
    }
}

impl<'a> Stream<'a> {
    fn new(workload: &'a Workload) -> Self {
        Self {
            workload,
            nonces: vec![0; workload.senders().len()],
            random: Random::new(workload.params().seed),
            fresh: 0,
        }
    }

    fn receiver(&mut self, choosers: &mut Choosers) -> Address {
        let params = self.workload.params();
        if self.random.percent(params.fresh_percent) {
            self.fresh += 1;
            return Address::from_word(hash("fresh", params.seed, self.fresh - 1));
        }
        let receiver = choosers.receivers.choose(&mut self.random);
        self.workload.address(choosers.first_receiver + receiver)
    }

    fn draw(&mut self, choosers: &mut Choosers) -> Draw {
        let sender = choosers.senders.choose(&mut self.random) as usize;
        let nonce = self.nonces[sender];
        self.nonces[sender] += 1;
        let workload = self.workload;
        let kind = workload.params().kind(self.random.below(100));
        let (to, value, input) = match kind {
            Kind::Payment => {
                let to = self.receiver(choosers);
                let amount = 1 + self.random.below(PAYMENT_MAX);
                (to, U256::from(amount), Bytes::new())
            }
            Kind::TokenTransfer => {
                let to = self.receiver(choosers);
                let amount = 1 + self.random.below(TOKENS_MAX);
                (TOKEN, U256::ZERO, transfer_call(&to, U256::from(amount)))
            }
            Kind::Swap => {
                let pool = choosers.pools.choose(&mut self.random);
                let mut path = [TOKEN, workload.pool(pool).token];
                if self.random.percent(50) {
                    path.reverse();
                }
                let amount = 1 + self.random.below(SWAP_MAX);
                let receiver = &workload.senders()[sender].address;
                let call = swap_call(U256::from(amount), &path, receiver);
                (ROUTER, U256::ZERO, call)
            }
            Kind::SlotRead => {
                let seed = self.random.below(u64::MAX);
                (SLOT_READER, U256::ZERO, read_call(U256::from(seed)))
            }
        };
        Draw {
            sender,
            kind,
            transaction: TxEip1559 {
                chain_id: workload.params().chain_id,
                nonce,
                gas_limit: workload.params().gas_limit_of(kind),
                max_fee_per_gas: FEE_MAX,
                max_priority_fee_per_gas: TIP,
                to: TxKind::Call(to),
                value,
                input,
                ..TxEip1559::default()
            },
        }
    }
}

impl Iterator for Stream<'_> {
    type Item = Vec<Transaction>;

    fn next(&mut self) -> Option<Vec<Transaction>> {
        let params = self.workload.params();
        let mut choosers = Choosers::new(params, &mut self.random);
        let mut draws = Vec::new();
        match params.block_size {
            BlockSize::Transactions(count) => {
                draws.extend((0..count).map(|_| self.draw(&mut choosers)));
            }
            BlockSize::Gas(gas_max) => {
                let mut gas = 0;
                while draws.is_empty() || gas < gas_max {
                    let draw = self.draw(&mut choosers);
                    gas += params.gas_of(draw.kind);
                    draws.push(draw);
                }
            }
        }
        let senders = self.workload.senders();
        let signed = draws.into_par_iter().map(|draw| {
            let signature = sign(&draw.transaction, &senders[draw.sender].secret);
            draw.transaction.into_signed(signature).into()
        });
        Some(signed.collect())
    }
}

/// An unsigned transaction.
struct Draw {
    sender: usize,
    kind: Kind,
    transaction: TxEip1559,
}

/// Signs with the deterministic nonce of RFC 6979, so that a transaction always has the same
/// signature.
fn sign(transaction: &TxEip1559, secret: &SecretKey) -> Signature {
    let message = Message::from_digest(transaction.signature_hash().0);
    let (recovery, bytes) = SECP256K1
        .sign_ecdsa_recoverable(message, secret)
        .serialize_compact();
    let is_odd = i32::from(recovery) & 1 == 1;
    Signature::from_bytes_and_parity(&bytes, is_odd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_rlp::Encodable;

    #[test]
    fn transactions_take_fewer_bytes_than_blocks_have_room_for() {
        for (kind, erc20_percent, swap_percent, slot_read_percent) in [
            (Kind::Payment, 0, 0, 0),
            (Kind::TokenTransfer, 100, 0, 0),
            (Kind::Swap, 0, 100, 0),
            (Kind::SlotRead, 0, 0, 100),
        ] {
            let params = WorkloadParams {
                accounts: 1,
                block_size: BlockSize::Transactions(300),
                erc20_percent,
                swap_percent,
                slot_read_percent,
                ..WorkloadParams::default()
            };
            let workload = Workload::new(params).unwrap();
            let transactions = workload.transactions().next().unwrap();
            let longest = transactions.iter().map(Encodable::length).max().unwrap();
            let (longest, max) = (longest as u64, kind.bytes_max());
            // Nonces and the chain's id may be up to five bytes longer each.
            assert!(
                longest + 10 <= max && max < 2 * longest,
                "{kind:?}: {longest}"
            );
        }
    }
}
