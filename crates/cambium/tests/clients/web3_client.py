"""What web3.py sees of a server."""

import asyncio
import sys

import rlp
from eth_abi import encode
from eth_account import Account
from eth_utils import keccak
from web3 import AsyncWeb3, Web3, WebSocketProvider
from web3.exceptions import ContractLogicError

_, URL, SECRET, TOKEN = sys.argv
ABI = [
    {
        "type": "function",
        "name": "balanceOf",
        "stateMutability": "view",
        "inputs": [{"name": "holder", "type": "address"}],
        "outputs": [{"name": "", "type": "uint256"}],
    },
    {
        "type": "function",
        "name": "transfer",
        "stateMutability": "nonpayable",
        "inputs": [{"name": "to", "type": "address"}, {"name": "amount", "type": "uint256"}],
        "outputs": [{"name": "", "type": "bool"}],
    },
    {
        "type": "event",
        "name": "Transfer",
        "anonymous": False,
        "inputs": [
            {"name": "from", "type": "address", "indexed": True},
            {"name": "to", "type": "address", "indexed": True},
            {"name": "value", "type": "uint256", "indexed": False},
        ],
    },
]
TRANSFER = "0x" + keccak(text="Transfer(address,address,uint256)").hex()


def proved(root, key, nodes):
    """Returns the value at a key of a Merkle Patricia trie, or None if the proof shows that there is none."""
    path = keccak(key).hex()
    nodes = list(nodes)
    at, expected, node = 0, bytes(root), None
    while True:
        if node is None:
            encoded = bytes(nodes.pop(0))
            assert keccak(encoded) == expected, "hash of a node"
            node = rlp.decode(encoded)
        if len(node) == 17:
            child = node[int(path[at], 16)]
            at += 1
            if child == b"":
                value = None
                break
        else:
            flagged = node[0].hex()
            flag = int(flagged[0], 16)
            own = flagged[1 if flag & 1 else 2 :]
            if path[at : at + len(own)] != own:
                value = None
                break
            at += len(own)
            if flag & 2:
                value = node[1]
                break
            child = node[1]
        node, expected = (child, None) if isinstance(child, list) else (None, child)
    assert not nodes, "the proof has more nodes than it needs"
    return value


def mine():
    """Has a block built of what waits, and made the head. Returns its hash."""
    print("mine", flush=True)
    return sys.stdin.readline().strip()


async def news(ready, until):
    """Heads and logs over a WebSocket, until both are those that are wanted."""
    async with AsyncWeb3(WebSocketProvider(URL.replace("http", "ws"))) as socket:
        heads = await socket.eth.subscribe("newHeads")
        await socket.eth.subscribe("logs", {"address": TOKEN, "topics": [TRANSFER]})
        ready.set()
        has_head = has_log = False
        async for message in socket.socket.process_subscriptions():
            result = message["result"]
            wanted = await until.wait() and until.wanted
            if message["subscription"] == heads:
                has_head = has_head or result["hash"] == wanted[0]
            else:
                has_log = has_log or result["transactionHash"] == wanted[1]
            if has_head and has_log:
                return


async def main():
    web3 = Web3(Web3.HTTPProvider(URL))
    account = Account.from_key(SECRET)
    contract = web3.eth.contract(address=Web3.to_checksum_address(TOKEN), abi=ABI)
    head = web3.eth.get_block("latest", full_transactions=True)
    assert head["number"] >= 10 and head["transactions"], "there is a chain with transactions"
    balance = web3.eth.get_balance(account.address)
    assert web3.eth.get_balance(account.address, 1) > 0
    assert contract.functions.balanceOf(account.address).call() > 0

    logs = contract.events.Transfer().get_logs(from_block=0, to_block=head["number"])
    counted = 0
    for number in range(head["number"] + 1):
        for receipt in web3.eth.get_block_receipts(number):
            counted += sum(log["address"].lower() == TOKEN.lower() for log in receipt["logs"])
    assert len(logs) == counted > 0, (len(logs), counted)

    slot = keccak(encode(["address", "uint256"], [account.address, 0]))
    for number in (head["number"], 1):
        root = web3.eth.get_block(number)["stateRoot"]
        own = web3.eth.get_proof(account.address, [], number)
        fields = rlp.decode(proved(root, bytes.fromhex(account.address[2:]), own["accountProof"]))
        assert int.from_bytes(fields[1], "big") == web3.eth.get_balance(account.address, number)
        of = web3.eth.get_proof(contract.address, [int.from_bytes(slot, "big")], number)
        fields = rlp.decode(proved(root, bytes.fromhex(TOKEN[2:]), of["accountProof"]))
        value = rlp.decode(proved(fields[2], slot, of["storageProof"][0]["proof"]))
        held = contract.functions.balanceOf(account.address).call(block_identifier=number)
        assert int.from_bytes(value, "big") == held

    ready, until = asyncio.Event(), asyncio.Event()
    listening = asyncio.create_task(news(ready, until))
    await asyncio.wait_for(ready.wait(), 20)

    to = Web3.to_checksum_address("0x" + "ca401".rjust(40, "0"))
    before = contract.functions.balanceOf(to).call()
    nonce = web3.eth.get_transaction_count(account.address)
    call = contract.functions.transfer(to, 9).build_transaction({"from": account.address, "nonce": nonce})
    signed = account.sign_transaction(call)
    sent = web3.eth.send_raw_transaction(signed.raw_transaction)
    assert web3.eth.get_transaction_count(account.address, "pending") == nonce + 1
    mined = bytes.fromhex(mine()[2:])
    receipt = web3.eth.wait_for_transaction_receipt(sent, timeout=20, poll_latency=0.05)
    assert receipt["status"] == 1 and bytes(receipt["blockHash"]) == mined
    assert contract.functions.balanceOf(to).call() == before + 9
    paid = balance - web3.eth.get_balance(account.address)
    assert paid == receipt["gasUsed"] * receipt["effectiveGasPrice"]
    until.wanted = (mined, bytes(sent))
    until.set()
    await asyncio.wait_for(listening, 20)

    try:
        contract.functions.transfer(to, 1 << 200).call({"from": account.address})
    except ContractLogicError:
        pass
    else:
        raise AssertionError("a transfer of too much does not fail")
    assert web3.eth.fee_history(3, "latest", [50])["baseFeePerGas"]


asyncio.run(main())
print("ok", flush=True)
