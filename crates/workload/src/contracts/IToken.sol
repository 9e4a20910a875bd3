// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// What pairs and router ask of a token.
interface IToken {
    function balanceOf(address holder) external view returns (uint256);
    function transfer(address to, uint256 amount) external returns (bool);
    function transferFrom(address from, address to, uint256 amount) external returns (bool);
}
