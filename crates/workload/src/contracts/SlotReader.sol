// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// The worst case for whoever has to read state: many values, and calls that read one of them
/// after another until their gas is used up. Which ones is known only by executing the call.
contract SlotReader {
    /// How many values there are.
    uint256 public count; // slot 0
    /// Slot of a value: keccak256(index, 1).
    mapping(uint256 => uint256) public values;

    /// `digest` is the exclusive or of the values read.
    event Read(address indexed reader, uint256 reads, uint256 digest);

    /// Gas that the loop leaves: for a last round, and for the event.
    uint256 private constant RESERVE = 6000;

    /// Reads values in a row that begins where keccak256(caller, seed) says, and goes round at the
    /// end. The values lie all over the trie, wherever the row begins. None is read twice, unless
    /// the gas is enough to read all.
    function read(uint256 seed) external {
        uint256 reads;
        uint256 digest;
        uint256 length = count;
        assembly ("memory-safe") {
            mstore(0, caller())
            mstore(32, seed)
            let index := mod(keccak256(0, 64), length)
            mstore(32, values.slot)
            for {} gt(gas(), RESERVE) {} {
                mstore(0, index)
                digest := xor(digest, sload(keccak256(0, 64)))
                index := mod(add(index, 1), length)
                reads := add(reads, 1)
            }
        }
        emit Read(msg.sender, reads, digest);
    }
}
