//! The contracts of workloads: their codes, where they are, and what their storage and their calls
//! look like.
//!
//! They are written in Solidity, beside this file, and kept with the run-time code that `solc`
//! makes of them; `./compile` makes it anew. Nothing deploys them: they are in the genesis block,
//! so that their storage may be as large as a workload wants it.

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

pub(super) static TOKEN_CODE: Bytes = code!("Token");
pub(super) static PAIR_CODE: Bytes = code!("Pair");
pub(super) static ROUTER_CODE: Bytes = code!("Router");
pub(super) static SLOT_READER_CODE: Bytes = code!("SlotReader");

/// Where the token of token transfers is. Every pool has it on one side.
pub const TOKEN: Address = address!("70ce000000000000000000000000000000000000");
/// Where the router is, which swaps.
pub const ROUTER: Address = address!("407e400000000000000000000000000000000000");
/// Where the contract is whose slots are read until a transaction's gas is used up.
pub const SLOT_READER: Address = address!("5107000000000000000000000000000000000000");

/// Where a token keeps its supply.
pub(super) const TOKEN_SUPPLY_SLOT: B256 = number(2);

/// The slot of a token in which `holder`'s balance is: keccak(holder, 0), as Solidity has it.
pub fn token_balance_slot(holder: &Address) -> B256 {
    mapping_slot(holder.into_word(), number(0))
}

/// The slot of a token in which it is how much of `owner`'s the spender may move.
pub(super) fn token_allowance_slot(owner: &Address, spender: &Address) -> B256 {
    let of_owner = mapping_slot(owner.into_word(), number(1));
    mapping_slot(spender.into_word(), of_owner)
}

/// The call `transfer(to, amount)` of a token.
pub(super) fn transfer_call(to: &Address, amount: U256) -> Bytes {
    const SELECTOR: [u8; 4] = [0xa9, 0x05, 0x9c, 0xbb];
    call(SELECTOR, [to.into_word(), amount.into()])
}

/// Where the pair of two tokens is, as the router finds it.
pub(super) fn pair_address(tokens: &[Address; 2]) -> Address {
    Address::from_word(keccak256(sorted(tokens).as_flattened()))
}

/// The slots of a pair that has `reserve` of both tokens, all of them those that a swap touches.
pub(super) fn pair_slots(
    tokens: &[Address; 2],
    reserve: u128,
    timestamp: u32,
) -> [(B256, U256); 6] {
    let [token0, token1] = sorted(tokens).map(|token| U256::from_be_bytes(token.into_word().0));
    let reserve = U256::from(reserve);
    let reserves = reserve | (reserve << 112) | (U256::from(timestamp) << 224);
    // Sums of prices that are not zero any more, as in every pair in use.
    let sum = U256::from(1) << 112;
    let unlocked = U256::from(1);
    let values = [token0, token1, reserves, sum, sum, unlocked];
    std::array::from_fn(|slot| (number(slot as u8), values[slot]))
}

/// The router's call `swapExactTokensForTokens(amount, 1, [from, to], receiver, deadline)`.
pub(super) fn swap_call(amount: U256, path: &[Address; 2], receiver: &Address) -> Bytes {
    const SELECTOR: [u8; 4] = [0x38, 0xed, 0x17, 0x39];
    /// Later than any block of a workload.
    const DEADLINE: U256 = U256::from_limbs([1 << 40, 0, 0, 0]);
    /// Of the path's length, behind the five arguments.
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

/// Where the slot reader keeps how many values it has.
pub(super) const SLOT_READER_COUNT_SLOT: B256 = number(0);

/// The slot of the slot reader's value `index`.
pub(super) fn slot_reader_slot(index: u64) -> B256 {
    mapping_slot(U256::from(index).into(), number(1))
}

/// The slot reader's call `read(seed)`.
pub(super) fn read_call(seed: U256) -> Bytes {
    const SELECTOR: [u8; 4] = [0xed, 0x2e, 0x5a, 0x97];
    call(SELECTOR, [seed.into()])
}

/// Where Solidity's mapping at `slot` has the value of `key`.
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
