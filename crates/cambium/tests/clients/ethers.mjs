// What ethers sees of a server.
import { awaited, equal, holds, load, mine, proved, rejects, run, secret, token, url } from "./harness.mjs";

const { ethers } = await load("ethers");
const rlp = { decode: ethers.decodeRlp, keccak: ethers.keccak256 };
const ABI = [
  "function balanceOf(address) view returns (uint256)",
  "function transfer(address to, uint256 amount) returns (bool)",
  "event Transfer(address indexed from, address indexed to, uint256 value)",
];

run(async () => {
  // Every question is asked: the default repeats an answer for a quarter of a second.
  const provider = new ethers.JsonRpcProvider(url, undefined, { cacheTimeout: -1, polling: true, pollingInterval: 50 });
  const wallet = new ethers.Wallet(secret, provider);
  const contract = new ethers.Contract(token, ABI, wallet);
  const head = await provider.getBlock("latest", true);
  holds(head.number >= 10 && head.prefetchedTransactions.length > 0, "there is a chain with transactions");
  const balance = await provider.getBalance(wallet.address);
  holds((await provider.getBalance(wallet.address, 1)) > 0n, "an old balance is there");
  holds((await contract.balanceOf(wallet.address)) > 0n, "the account has tokens");

  const logs = await contract.queryFilter("Transfer", 0, head.number);
  let counted = 0;
  for (let number = 0; number <= head.number; number++) {
    const receipts = await provider.send("eth_getBlockReceipts", [ethers.toQuantity(number)]);
    counted += receipts.flatMap((receipt) => receipt.logs).filter((log) => log.address === token.toLowerCase()).length;
  }
  holds(counted > 0, "there are transfers");
  equal(logs.length, counted, "transfers by filter and by receipts");

  const slot = ethers.keccak256(ethers.AbiCoder.defaultAbiCoder().encode(["address", "uint256"], [wallet.address, 0]));
  for (const tag of [ethers.toQuantity(head.number), "0x1"]) {
    const { stateRoot } = await provider.send("eth_getBlockByNumber", [tag, false]);
    const own = await provider.send("eth_getProof", [wallet.address, [], tag]);
    const fields = ethers.decodeRlp(proved(stateRoot, wallet.address, own.accountProof, rlp));
    equal(ethers.toBigInt(fields[1]), await provider.getBalance(wallet.address, tag), "proved balance");
    const of = await provider.send("eth_getProof", [token, [slot], tag]);
    const [, , storageRoot] = ethers.decodeRlp(proved(stateRoot, token, of.accountProof, rlp));
    const value = ethers.decodeRlp(proved(storageRoot, slot, of.storageProof[0].proof, rlp));
    equal(ethers.toBigInt(value), await contract.balanceOf(wallet.address, { blockTag: tag }), "proved tokens");
    // Of an account that is not there.
    const nobody = "0x00000000000000000000000000000000deadbeef";
    const none = await provider.send("eth_getProof", [nobody, [], tag]);
    equal(proved(stateRoot, nobody, none.accountProof, rlp), null, "proved absence");
  }

  const socket = new ethers.WebSocketProvider(url.replace("http", "ws"));
  const heads = [];
  const transfers = [];
  await socket.on("block", (number) => heads.push(number));
  await socket.on({ address: token, topics: [ethers.id("Transfer(address,address,uint256)")] }, (log) => transfers.push(log));
  await new Promise((done) => setTimeout(done, 500));

  const to = "0x0000000000000000000000000000000000000b0b";
  const before = await contract.balanceOf(to);
  const sent = await contract.transfer(to, 7n);
  equal(await provider.getTransactionCount(wallet.address, "pending"), sent.nonce + 1, "pending nonce");
  const mined = await mine();
  const receipt = await sent.wait(1, 20_000);
  equal(receipt.status, 1, "status");
  equal(receipt.blockHash, mined, "block of the receipt");
  equal(await contract.balanceOf(to), before + 7n, "tokens");
  equal(balance - (await provider.getBalance(wallet.address)), receipt.fee, "price");
  await awaited("the news of the block", function look(done) {
    const log = transfers.find((log) => log.transactionHash === sent.hash);
    if (heads.includes(receipt.blockNumber) && log) done();
    else setTimeout(() => look(done), 20);
  });

  const reverted = await rejects(contract.transfer.staticCall(to, 1n << 200n), "a transfer of too much");
  equal(reverted.code, "CALL_EXCEPTION", "error");
  holds((await provider.getFeeData()).maxFeePerGas > 0n, "fees are estimated");
  await socket.destroy();
  provider.destroy();
});
