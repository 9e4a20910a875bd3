// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {IToken} from "./IToken.sol";

/// A pool of two tokens in which the product of the reserves never falls: the swap of Uniswap V2's
/// pair, which reads, writes and logs the same things in the same order. Shares in the pool, and
/// flash loans, are left out: the reserves are there from genesis on, and no swap touches them.
contract Pair {
    address public token0; // slot 0; the lower address
    address public token1; // slot 1

    uint112 private reserve0; // slot 2, together
    uint112 private reserve1;
    uint32 private blockTimestampLast;

    /// Sums of price times seconds, as 112.112 bit fixed-point numbers.
    uint256 public price0CumulativeLast; // slot 3
    uint256 public price1CumulativeLast; // slot 4

    uint256 private unlocked; // slot 5: 1 between calls

    event Swap(
        address indexed sender,
        uint256 amount0In,
        uint256 amount1In,
        uint256 amount0Out,
        uint256 amount1Out,
        address indexed to
    );
    event Sync(uint112 reserve0, uint112 reserve1);

    modifier lock() {
        require(unlocked == 1, "locked");
        unlocked = 0;
        _;
        unlocked = 1;
    }

    function getReserves() public view returns (uint112, uint112, uint32) {
        return (reserve0, reserve1, blockTimestampLast);
    }

    /// Pays out, and then looks whether what was paid in before makes up for it, the fee of 0.3 %
    /// included.
    function swap(uint256 amount0Out, uint256 amount1Out, address to) external lock {
        require(amount0Out > 0 || amount1Out > 0, "no output");
        (uint112 before0, uint112 before1, ) = getReserves();
        require(amount0Out < before0 && amount1Out < before1, "too little liquidity");

        uint256 balance0;
        uint256 balance1;
        {
            (address first, address second) = (token0, token1);
            require(to != first && to != second, "to a token");
            if (amount0Out > 0) IToken(first).transfer(to, amount0Out);
            if (amount1Out > 0) IToken(second).transfer(to, amount1Out);
            balance0 = IToken(first).balanceOf(address(this));
            balance1 = IToken(second).balanceOf(address(this));
        }
        uint256 left0 = before0 - amount0Out;
        uint256 left1 = before1 - amount1Out;
        uint256 amount0In = balance0 > left0 ? balance0 - left0 : 0;
        uint256 amount1In = balance1 > left1 ? balance1 - left1 : 0;
        require(amount0In > 0 || amount1In > 0, "no input");
        {
            uint256 adjusted0 = balance0 * 1000 - amount0In * 3;
            uint256 adjusted1 = balance1 * 1000 - amount1In * 3;
            require(adjusted0 * adjusted1 >= uint256(before0) * before1 * 1000 ** 2, "product");
        }
        update(balance0, balance1, before0, before1);
        emit Swap(msg.sender, amount0In, amount1In, amount0Out, amount1Out, to);
    }

    function update(uint256 balance0, uint256 balance1, uint112 before0, uint112 before1) private {
        require(balance0 <= type(uint112).max && balance1 <= type(uint112).max, "overflow");
        unchecked {
            // Time and sums wrap, as differences of them are what is used.
            uint32 timestamp = uint32(block.timestamp);
            uint32 elapsed = timestamp - blockTimestampLast;
            if (elapsed > 0 && before0 != 0 && before1 != 0) {
                price0CumulativeLast += ((uint256(before1) << 112) / before0) * elapsed;
                price1CumulativeLast += ((uint256(before0) << 112) / before1) * elapsed;
            }
            reserve0 = uint112(balance0);
            reserve1 = uint112(balance1);
            blockTimestampLast = timestamp;
        }
        emit Sync(reserve0, reserve1);
    }
}
