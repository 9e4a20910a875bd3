// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// An ERC-20 token whose holders, allowances and supply a genesis block has: nothing mints it.
contract Token {
    /// Slot of a holder: keccak256(holder, 0).
    mapping(address => uint256) public balanceOf;
    /// Slot of a spender: keccak256(spender, keccak256(owner, 1)).
    mapping(address => mapping(address => uint256)) public allowance;
    /// Slot 2.
    uint256 public totalSupply;

    string public constant name = "Cambium Workload Token";
    string public constant symbol = "RING";
    uint8 public constant decimals = 18;

    event Transfer(address indexed from, address indexed to, uint256 amount);
    event Approval(address indexed owner, address indexed spender, uint256 amount);

    error InsufficientBalance(uint256 balance, uint256 amount);
    error InsufficientAllowance(uint256 allowance, uint256 amount);

    function transfer(address to, uint256 amount) external returns (bool) {
        move(msg.sender, to, amount);
        return true;
    }

    function approve(address spender, uint256 amount) external returns (bool) {
        allowance[msg.sender][spender] = amount;
        emit Approval(msg.sender, spender, amount);
        return true;
    }

    /// An allowance of 2^256 - 1 is never used up, and then not written.
    function transferFrom(address from, address to, uint256 amount) external returns (bool) {
        uint256 allowed = allowance[from][msg.sender];
        if (allowed != type(uint256).max) {
            if (allowed < amount) revert InsufficientAllowance(allowed, amount);
            unchecked {
                allowance[from][msg.sender] = allowed - amount;
            }
        }
        move(from, to, amount);
        return true;
    }

    function move(address from, address to, uint256 amount) private {
        uint256 balance = balanceOf[from];
        if (balance < amount) revert InsufficientBalance(balance, amount);
        unchecked {
            balanceOf[from] = balance - amount;
            // All balances together are the supply, which has not overflowed.
            balanceOf[to] += amount;
        }
        emit Transfer(from, to, amount);
    }
}
