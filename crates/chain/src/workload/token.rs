//! The ERC-20 contract of workloads, assembled by hand: as small as one can be that stores and
//! logs what Solidity's would.
//!
//! ```solidity
//! contract Token {
//!     mapping(address => uint256) public balanceOf; // slot 0
//!
//!     event Transfer(address indexed from, address indexed to, uint256 amount);
//!
//!     function transfer(address to, uint256 amount) external returns (bool) {
//!         require(balanceOf[msg.sender] >= amount); // reverts without a message
//!         unchecked {
//!             balanceOf[msg.sender] -= amount;
//!             balanceOf[to] += amount;
//!         }
//!         emit Transfer(msg.sender, to, amount);
//!         return true;
//!     }
//! }
//! ```
//!
//! Left out are allowances, a name and a supply: no transfer touches them.

use alloy_primitives::{Address, B256, Bytes, U256, address, bytes, keccak256};

/// Where the token is.
pub const TOKEN: Address = address!("70ce000000000000000000000000000000000000");

/// The token's code:
///
/// ```text
/// 00  PUSH0 CALLDATALOAD PUSH1 e0 SHR                       the selector
/// 05  DUP1 PUSH4 a9059cbb EQ PUSH1 2d JUMPI                 transfer(address,uint256)
/// 0f  PUSH4 70a08231 EQ PUSH1 1c JUMPI                      balanceOf(address)
/// 18  JUMPDEST PUSH0 PUSH0 REVERT
///
/// 1c  JUMPDEST PUSH1 04 CALLDATALOAD PUSH0 MSTORE
/// 22  PUSH1 40 PUSH0 KECCAK256 SLOAD                        memory 20..40 stays zero: slot 0
/// 27  PUSH0 MSTORE PUSH1 20 PUSH0 RETURN
///
/// 2d  JUMPDEST CALLVALUE PUSH1 18 JUMPI                     takes no ether
/// 32  CALLER PUSH0 MSTORE PUSH1 40 PUSH0 KECCAK256          from's slot
/// 39  DUP1 SLOAD PUSH1 24 CALLDATALOAD                      slot, balance, amount
/// 3e  DUP1 DUP3 LT PUSH1 18 JUMPI                           balance < amount
/// 44  DUP1 SWAP2 SUB DUP3 SSTORE                            slot, amount
/// 49  PUSH1 04 CALLDATALOAD
/// 4c  DUP1 PUSH1 a0 SHR PUSH1 18 JUMPI                      no address
/// 53  DUP1 PUSH0 MSTORE PUSH1 40 PUSH0 KECCAK256            slot, amount, to, to's slot
/// 5a  DUP1 SLOAD DUP4 ADD SWAP1 SSTORE                      slot, amount, to
/// 60  SWAP1 PUSH0 MSTORE CALLER PUSH32 ddf2..b3ef           slot, to, from, topic
/// 85  PUSH1 20 PUSH0 LOG3                                   slot
/// 89  PUSH1 01 PUSH0 MSTORE PUSH1 20 PUSH0 RETURN
/// ```
pub static TOKEN_CODE: Bytes = bytes!(
    "5f3560e01c8063a9059cbb14602d576370a0823114601c57"
    "5b5f5ffd"
    "5b6004355f5260405f20545f5260205ff3"
    "5b34601857"
    "335f5260405f208054602435808210601857"
    "8091038255"
    "6004358060a01c601857805f5260405f20805483019055"
    "905f52337fddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef60205fa3"
    "60015f5260205ff3"
);

/// The slot of `holder`'s balance: keccak(holder, 0), as Solidity has it.
pub fn token_balance_slot(holder: &Address) -> B256 {
    let mut input = [0; 64];
    input[..32].copy_from_slice(holder.into_word().as_slice());
    keccak256(input)
}

/// The call `transfer(to, amount)`.
pub(super) fn transfer_call(to: &Address, amount: U256) -> Bytes {
    const TRANSFER: [u8; 4] = [0xa9, 0x05, 0x9c, 0xbb];
    [
        &TRANSFER[..],
        to.into_word().as_slice(),
        &amount.to_be_bytes::<32>(),
    ]
    .concat()
    .into()
}
