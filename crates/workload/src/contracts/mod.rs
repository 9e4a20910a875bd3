//! The contracts of workloads: codes, addresses, storage layout and calls.
//!
//! They are written in Solidity, in this folder, together with the run-time code that `solc`
//! compiles; `./compile` compiles it again. They are not deployed but part of the genesis state, so
//! that their storage may have any size.

use alloy_primitives::{Address, B256, Bytes, FixedBytesSliceExt, U256, address, hex, keccak256};

/// The code of the contract in `contracts/NAME.sol`.
macro_rules! code {
    ($name:literal) => {{
        const HEX: &[u8] = include_bytes!(concat!($name, ".hex")).trim_ascii();
        static CODE: [u8; HEX.len() / 2] = match hex::const_decode_to_array(HEX) {
            Ok(code) => code,
            Err(_) => panic!("not hex"),
        };
        Bytes::from_static(&CODE)
    }};
}

pub(crate) static TOKEN_CODE: Bytes = code!("Token");
pub(crate) static PAIR_CODE: Bytes = code!("Pair");
pub(crate) static ROUTER_CODE: Bytes = code!("Router");
pub(crate) static SLOT_READER_CODE: Bytes = code!("SlotReader");

/// Address of the token of token transfers, which is also one of the two tokens of every pool.
pub const TOKEN: Address = address!("70ce000000000000000000000000000000000000");
/// Address of the router, which executes swaps.
pub const ROUTER: Address = address!("407e400000000000000000000000000000000000");
/// Address of the slot reader, which reads its slots until a transaction's gas is used up.
pub const SLOT_READER: Address = address!("5107000000000000000000000000000000000000");

/// Slot of a token's supply.
pub(crate) const TOKEN_SUPPLY_SLOT: B256 = number(2);

/// Slot of a holder's balance in a token contract: keccak(holder, 0), as in Solidity.
pub fn token_balance_slot(holder: &Address) -> B256 {
    mapping_slot(holder.into_word(), number(0))
}

/// Slot of a spender's allowance in a token contract.
pub(crate) fn token_allowance_slot(owner: &Address, spender: &Address) -> B256 {
    let of_owner = mapping_slot(owner.into_word(), number(1));
    mapping_slot(spender.into_word(), of_owner)
}

/// Encodes the call `transfer(to, amount)` of a token.
pub(crate) fn transfer_call(to: &Address, amount: U256) -> Bytes {
    const SELECTOR: [u8; 4] = [0xa9, 0x05, 0x9c, 0xbb];
    call(SELECTOR, [to.into_word(), amount.into()])
}

/// Address of the pair contract of two tokens, as the router computes it.
pub(crate) fn pair_address(tokens: &[Address; 2]) -> Address {
    Address::from_word(keccak256(sorted(tokens).as_flattened()))
}

/// Slots of a pair with `reserve` units of both tokens: all slots that a swap touches.
pub(crate) fn pair_slots(
    tokens: &[Address; 2],
    reserve: u128,
    timestamp: u32,
) -> [(B256, U256); 6] {
    let [token0, token1] = sorted(tokens).map(|token| U256::from_be_bytes(token.into_word().0));
    let reserve = U256::from(reserve);
    let reserves = reserve | (reserve << 112) | (U256::from(timestamp) << 224);
    // Price sums that are not zero, as in every pair in use.
    let sum = U256::from(1) << 112;
    let unlocked = U256::from(1);
    let values = [token0, token1, reserves, sum, sum, unlocked];
    std::array::from_fn(|slot| (number(slot as u8), values[slot]))
}

/// Encodes the router's call `swapExactTokensForTokens(amount, 1, [from, to], receiver, deadline)`.
pub(crate) fn swap_call(amount: U256, path: &[Address; 2], receiver: &Address) -> Bytes {
    const SELECTOR: [u8; 4] = [0x38, 0xed, 0x17, 0x39];
    /// A timestamp after all blocks of a workload.
    const DEADLINE: U256 = U256::from_limbs([1 << 40, 0, 0, 0]);
    /// Offset of the path's length, which follows the five arguments.
    const PATH_OFFSET: U256 = U256::from_limbs([5 * 32, 0, 0, 0]);
    let arguments = [
        amount.into(),
        number(1),
        PATH_OFFSET.into(),
        receiver.into_word(),
        DEADLINE.into(),
        number(2),
        path[0].into_word(),
        path[1].into_word(),
    ];
    call(SELECTOR, arguments)
}

/// Slot of the slot reader's number of values.
pub(crate) const SLOT_READER_COUNT_SLOT: B256 = number(0);

/// Slot of the slot reader's value `index`.
pub(crate) fn slot_reader_slot(index: u64) -> B256 {
    mapping_slot(U256::from(index).into(), number(1))
}

/// Encodes the slot reader's call `read(seed)`.
pub(crate) fn read_call(seed: U256) -> Bytes {
    const SELECTOR: [u8; 4] = [0xed, 0x2e, 0x5a, 0x97];
    call(SELECTOR, [seed.into()])
}

/// Slot of the value of `key` in the Solidity mapping at `slot`.
fn mapping_slot(key: B256, slot: B256) -> B256 {
    keccak256([key, slot].as_flattened())
}

fn sorted(tokens: &[Address; 2]) -> [Address; 2] {
    let [a, b] = *tokens;
    [a.min(b), a.max(b)]
}

const fn number(number: u8) -> B256 {
    B256::with_last_byte(number)
}

fn call<const WORDS: usize>(selector: [u8; 4], words: [B256; WORDS]) -> Bytes {
    let words = words.iter().flat_map(|word| word.0);
    selector.into_iter().chain(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_begin_with_the_hash_of_their_signature() {
        let swap = "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)";
        for (call, signature) in [
            (
                transfer_call(&TOKEN, U256::ZERO),
                "transfer(address,uint256)",
            ),
            (swap_call(U256::ZERO, &[TOKEN; 2], &TOKEN), swap),
            (read_call(U256::ZERO), "read(uint256)"),
        ] {
            assert_eq!(call[..4], keccak256(signature)[..4], "{signature}");
        }
    }
}
