//! The row of signed transactions.

use super::{
    Spread, WorkloadParams,
    keys::{Random, Sender, hash},
    token::{TOKEN, transfer_call},
};
use crate::Transaction;
use alloy_consensus::{SignableTransaction, TxEip1559};
use alloy_primitives::{Address, Bytes, Signature, TxKind, U256};
use rayon::prelude::*;
use secp256k1::{Message, SECP256K1, SecretKey};

/// Gas of a payment.
pub(super) const PAYMENT_GAS: u64 = 21_000;
/// Enough for a token transfer to a new holder.
pub(super) const TOKEN_TRANSFER_GAS_LIMIT: u64 = 80_000;

const GWEI: u128 = 1_000_000_000;
/// Over any base fee that a workload sees: genesis has 1 gwei, and it falls from there.
const FEE_MAX: u128 = 10 * GWEI;
const TIP: u128 = GWEI;
/// Most wei of a payment: a thousandth of an ether.
const PAYMENT_MAX: u64 = 1_000_000_000_000_000;
/// Most units of a token transfer.
const TOKENS_MAX: u64 = 1_000_000;

/// The transactions of block after block.
pub(super) struct Stream<'a> {
    params: &'a WorkloadParams,
    senders: &'a [Sender],
    /// Of each sender, the next.
    nonces: Vec<u64>,
    random: Random,
    /// Fresh receivers so far.
    fresh: u64,
}

impl<'a> Stream<'a> {
    pub(super) fn new(params: &'a WorkloadParams, senders: &'a [Sender]) -> Self {
        let random = Random::new(params.seed);
        Self {
            params,
            senders,
            nonces: vec![0; senders.len()],
            random,
            fresh: 0,
        }
    }

    fn receiver(&mut self) -> Receiver {
        let WorkloadParams {
            accounts,
            fresh_percent,
            spread,
            ..
        } = *self.params;
        if self.random.percent(fresh_percent) {
            self.fresh += 1;
            return Receiver::Fresh(self.fresh - 1);
        }
        Receiver::Known(self.random.account(accounts, spread))
    }

    fn draw(&mut self) -> Draw {
        let spread: Spread = self.params.spread;
        let sender = self.random.account(self.senders.len() as u64, spread) as usize;
        let nonce = self.nonces[sender];
        self.nonces[sender] += 1;
        let is_token = self.random.percent(self.params.erc20_percent);
        let receiver = self.receiver();
        let amount = 1 + self
            .random
            .below(if is_token { TOKENS_MAX } else { PAYMENT_MAX });
        Draw {
            sender,
            nonce,
            is_token,
            receiver,
            amount,
        }
    }

    fn sign(&self, draw: &Draw) -> Transaction {
        let seed = self.params.seed;
        let receiver = match draw.receiver {
            Receiver::Fresh(index) => Address::from_word(hash("fresh", seed, index)),
            Receiver::Known(index) => match self.senders.get(index as usize) {
                Some(sender) => sender.address,
                None => Address::from_word(hash("account", seed, index)),
            },
        };
        let amount = U256::from(draw.amount);
        let (to, value, input, gas_limit) = if draw.is_token {
            (
                TOKEN,
                U256::ZERO,
                transfer_call(&receiver, amount),
                TOKEN_TRANSFER_GAS_LIMIT,
            )
        } else {
            (receiver, amount, Bytes::new(), PAYMENT_GAS)
        };
        let transaction = TxEip1559 {
            chain_id: self.params.chain_id,
            nonce: draw.nonce,
            gas_limit,
            max_fee_per_gas: FEE_MAX,
            max_priority_fee_per_gas: TIP,
            to: TxKind::Call(to),
            value,
            input,
            ..TxEip1559::default()
        };
        let signature = sign(&transaction, &self.senders[draw.sender].secret);
        transaction.into_signed(signature).into()
    }
}

impl Iterator for Stream<'_> {
    type Item = Vec<Transaction>;

    fn next(&mut self) -> Option<Vec<Transaction>> {
        let draws: Vec<Draw> = (0..self.params.transfers_per_block)
            .map(|_| self.draw())
            .collect();
        Some(draws.par_iter().map(|draw| self.sign(draw)).collect())
    }
}

enum Receiver {
    /// The so-manieth that is not in the genesis.
    Fresh(u64),
    /// An account's index.
    Known(u64),
}

/// A transaction yet to be put together.
struct Draw {
    sender: usize,
    nonce: u64,
    is_token: bool,
    receiver: Receiver,
    amount: u64,
}

/// Signs with the nonce of RFC 6979, so that the same transaction has the same signature.
fn sign(transaction: &TxEip1559, secret: &SecretKey) -> Signature {
    let message = Message::from_digest(transaction.signature_hash().0);
    let (recovery, bytes) = SECP256K1
        .sign_ecdsa_recoverable(message, secret)
        .serialize_compact();
    let is_odd = i32::from(recovery) & 1 == 1;
    Signature::from_bytes_and_parity(&bytes, is_odd)
}
