// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {IToken} from "./IToken.sol";
import {Pair} from "./Pair.sol";

/// Swaps along a path of tokens, as Uniswap V2's router does: the same call, the same quotes. Of a
/// pair it knows the address from those of its tokens, without reading anything.
contract Router {
    function swapExactTokensForTokens(
        uint256 amountIn,
        uint256 amountOutMin,
        address[] calldata path,
        address to,
        uint256 deadline
    ) external returns (uint256[] memory amounts) {
        require(deadline >= block.timestamp, "expired");
        amounts = getAmountsOut(amountIn, path);
        require(amounts[amounts.length - 1] >= amountOutMin, "too little output");
        IToken(path[0]).transferFrom(msg.sender, pairFor(path[0], path[1]), amountIn);
        for (uint256 i = 0; i < path.length - 1; i++) {
            uint256 amountOut = amounts[i + 1];
            (uint256 amount0Out, uint256 amount1Out) =
                path[i] < path[i + 1] ? (uint256(0), amountOut) : (amountOut, uint256(0));
            address receiver = i < path.length - 2 ? pairFor(path[i + 1], path[i + 2]) : to;
            Pair(pairFor(path[i], path[i + 1])).swap(amount0Out, amount1Out, receiver);
        }
    }

    /// What each step of the path gives for what the step before it gave.
    function getAmountsOut(uint256 amountIn, address[] calldata path)
        public
        view
        returns (uint256[] memory amounts)
    {
        require(path.length >= 2, "no path");
        amounts = new uint256[](path.length);
        amounts[0] = amountIn;
        for (uint256 i = 0; i < path.length - 1; i++) {
            (uint256 reserve0, uint256 reserve1, ) =
                Pair(pairFor(path[i], path[i + 1])).getReserves();
            amounts[i + 1] = path[i] < path[i + 1]
                ? getAmountOut(amounts[i], reserve0, reserve1)
                : getAmountOut(amounts[i], reserve1, reserve0);
        }
    }

    /// What a pair gives for `amountIn`, of which it keeps 0.3 %.
    function getAmountOut(uint256 amountIn, uint256 reserveIn, uint256 reserveOut)
        public
        pure
        returns (uint256)
    {
        require(amountIn > 0 && reserveIn > 0 && reserveOut > 0, "nothing to swap");
        uint256 amountInWithFee = amountIn * 997;
        return amountInWithFee * reserveOut / (reserveIn * 1000 + amountInWithFee);
    }

    /// Where the pair of two tokens is: keccak256(lower token, higher token).
    function pairFor(address a, address b) public pure returns (address) {
        (address token0, address token1) = a < b ? (a, b) : (b, a);
        return address(uint160(uint256(keccak256(abi.encodePacked(token0, token1)))));
    }
}
