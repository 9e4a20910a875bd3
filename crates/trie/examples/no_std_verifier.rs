//! A proof verifier without the standard library, as a bridge, a wallet on a chip or a guest of a zero-knowledge
//! machine needs it for a proof by `eth_getProof`, given a state root that it trusts.
//! `cargo run -p cambium-trie --example no_std_verifier`
//!
//! The module `verifier` uses `core`, `alloc` and the verifiers alone; `./test` compiles these without the
//! feature `std`. Only `main`, which makes a proof to verify, has the standard library. Executing
//! blocks statelessly needs that, too.

#![no_std]

extern crate alloc;
extern crate std;

/// A balance in a token contract, proved under a state root.
mod verifier {
    use alloc::vec::Vec;
    use alloy_primitives::{Address, B256, Bytes, U256};
    use alloy_rlp::{Decodable, Encodable, Header};
    use cambium_trie::{AccountProof, ProofError, StorageProof, verify_account_proof};

    /// Longest message, in bytes: 64 nodes of the account's trie, as many of its storage, and a bit.
    const MESSAGE_BYTES_MAX: usize = 128 << 10;

    /// Why a message proves nothing.
    #[derive(Debug, PartialEq, Eq)]
    pub(crate) enum Refused {
        /// The message is too long.
        TooLong,
        /// The message is not the RLP of a proof.
        Malformed(alloy_rlp::Error),
        /// The message proves another account or another slot.
        OtherSlot,
        /// The proof is false, or under another root.
        Unproved(ProofError),
    }

    /// Encodes a proof of one slot: an RLP list of address, nonce, balance, code hash, storage root, nodes of
    /// the account, slot, value, and nodes of the slot.
    pub(crate) fn encode(account: &AccountProof, slot: &StorageProof) -> Vec<u8> {
        let fields: [&dyn Encodable; 9] = [
            &account.address,
            &account.nonce,
            &account.balance,
            &account.code_hash,
            &account.storage_hash,
            &account.account_proof,
            &slot.key.slot,
            &slot.value,
            &slot.proof,
        ];
        let mut out = Vec::new();
        alloy_rlp::encode_list::<_, dyn Encodable>(&fields, &mut out);
        out
    }

    fn decode(mut message: &[u8]) -> alloy_rlp::Result<AccountProof> {
        let mut list = Header::decode_bytes(&mut message, true)?;
        let list = &mut list;
        let mut proof = AccountProof {
            address: Address::decode(list)?,
            nonce: u64::decode(list)?,
            balance: U256::decode(list)?,
            code_hash: B256::decode(list)?,
            storage_hash: B256::decode(list)?,
            account_proof: Vec::<Bytes>::decode(list)?,
            storage_proof: Vec::new(),
        };
        proof.storage_proof.push(StorageProof {
            key: B256::decode(list)?.into(),
            value: U256::decode(list)?,
            proof: Vec::<Bytes>::decode(list)?,
        });
        match list.is_empty() && message.is_empty() {
            true => Ok(proof),
            false => Err(alloy_rlp::Error::UnexpectedLength),
        }
    }

    /// The value of a contract's slot under a state root, as `message` proves it.
    pub(crate) fn verify(
        root: B256,
        contract: Address,
        slot: B256,
        message: &[u8],
    ) -> Result<U256, Refused> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(Refused::TooLong);
        }
        let proof = decode(message).map_err(Refused::Malformed)?;
        let verified = verify_account_proof(root, &proof).map_err(Refused::Unproved)?;
        match verified.slots[..] {
            [(proved, value)] if proof.address == contract && proved == slot => Ok(value),
            _ => Err(Refused::OtherSlot),
        }
    }
}

use alloc::{vec, vec::Vec};
use alloy_primitives::{Address, B256, U256, keccak256};
use cambium_keccak::Batch;
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Path};
use cambium_trie::{NoResolve, PartialTrie, commit};

const TOKEN: Address = Address::repeat_byte(0x70);

/// A state of 300 accounts, one of which has 100 slots.
fn state() -> PartialTrie {
    let account = |number: u64| AccountDiff {
        path: keccak256(number.to_be_bytes()),
        account: AccountUpdate::Put(Account {
            nonce: number,
            ..Account::default()
        }),
        wipe: false,
        slots: vec![],
    };
    let mut slots: Vec<_> = (1..=100u64)
        .map(|holder| {
            (
                keccak256(B256::from(U256::from(holder))),
                U256::from(holder * 10),
            )
        })
        .collect();
    slots.sort_unstable();
    let mut accounts: Vec<_> = (1..300).map(account).collect();
    accounts.push(AccountDiff {
        path: keccak256(TOKEN),
        slots,
        ..account(0)
    });
    accounts.sort_unstable_by_key(|account| account.path);
    let mut state = PartialTrie::new(Path::EMPTY);
    state
        .apply(&accounts, &mut NoResolve)
        .expect("nothing is absent");
    commit(&mut [&mut state], &mut Batch::new());
    state
}

fn main() {
    let mut state = state();
    let root = state.state_root().expect("hashed");
    for holder in [7u64, 100, 101] {
        let slot = B256::from(U256::from(holder));
        let proof = state.prove_account(TOKEN, &[slot.into()], &mut NoResolve);
        let proof = proof.expect("nothing is absent");
        let message = verifier::encode(&proof, &proof.storage_proof[0]);

        let value = verifier::verify(root, TOKEN, slot, &message).expect("proved");
        std::println!("{holder} has {value}, by {} bytes", message.len());
        let expected = if holder <= 100 { holder * 10 } else { 0 };
        assert_eq!(value, U256::from(expected));

        // With any bit changed, nothing is proved.
        for at in 0..message.len() {
            let mut forged = message.clone();
            forged[at] ^= 1 << (at % 8);
            assert!(verifier::verify(root, TOKEN, slot, &forged).is_err());
            assert!(verifier::verify(root, TOKEN, slot, &message[..at]).is_err());
        }
        let other = verifier::verify(root, TOKEN, B256::ZERO, &message);
        assert_eq!(other, Err(verifier::Refused::OtherSlot));
        let other = verifier::verify(B256::ZERO, TOKEN, slot, &message);
        assert!(matches!(other, Err(verifier::Refused::Unproved(_))));
        let long = vec![0; 1 << 20];
        let other = verifier::verify(root, TOKEN, slot, &long);
        assert_eq!(other, Err(verifier::Refused::TooLong));
    }
}

#[test]
fn it_runs() {
    main();
}
