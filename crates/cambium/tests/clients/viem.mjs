// What viem sees of a server.
import { awaited, equal, holds, load, mine, proved, rejects, run, secret, token, url } from "./harness.mjs";

const viem = await load("viem");
const { privateKeyToAccount } = await load("viem/accounts");
const abi = viem.parseAbi([
  "function balanceOf(address) view returns (uint256)",
  "function transfer(address to, uint256 amount) returns (bool)",
  "event Transfer(address indexed from, address indexed to, uint256 value)",
]);
const rlp = { decode: (bytes) => viem.fromRlp(bytes, "hex"), keccak: viem.keccak256 };

run(async () => {
  const account = privateKeyToAccount(secret);
  const http = viem.http(url, { batch: true });
  const first = viem.createPublicClient({ transport: http });
  const chain = viem.defineChain({
    id: await first.getChainId(),
    name: "test",
    nativeCurrency: { name: "ether", symbol: "ETH", decimals: 18 },
    rpcUrls: { default: { http: [url] } },
  });
  const client = viem.createPublicClient({ chain, transport: http, pollingInterval: 50 });
  const socket = viem.createPublicClient({ chain, transport: viem.webSocket(url.replace("http", "ws")) });
  const wallet = viem.createWalletClient({ account, chain, transport: http });
  const contract = { address: token, abi };

  const head = await client.getBlock({ includeTransactions: true });
  holds(head.number >= 10n && head.transactions.length > 0, "there is a chain with transactions");
  const balance = await client.getBalance({ address: account.address });
  const tokens = await client.readContract({ ...contract, functionName: "balanceOf", args: [account.address] });
  holds(tokens > 0n, "the account has tokens");
  const earlier = await client.getBalance({ address: account.address, blockNumber: 1n });
  holds(earlier > 0n, "an old balance is there");

  // All transfers, and the same from the receipts of each block.
  const logs = await client.getContractEvents({ ...contract, eventName: "Transfer", fromBlock: 0n, toBlock: head.number });
  let counted = 0;
  for (let number = 0n; number <= head.number; number++) {
    const receipts = await client.request({ method: "eth_getBlockReceipts", params: [viem.toHex(number)] });
    const own = receipts.flatMap((receipt) => receipt.logs);
    counted += own.filter((log) => viem.isAddressEqual(log.address, token)).length;
  }
  holds(counted > 0, "there are transfers");
  equal(logs.length, counted, "transfers by filter and by receipts");

  const slot = viem.keccak256(viem.encodeAbiParameters([{ type: "address" }, { type: "uint256" }], [account.address, 0n]));
  for (const blockNumber of [head.number, 1n]) {
    const { stateRoot } = await client.getBlock({ blockNumber });
    const own = await client.getProof({ address: account.address, storageKeys: [], blockNumber });
    const fields = viem.fromRlp(proved(stateRoot, account.address, own.accountProof, rlp), "hex");
    equal(viem.hexToBigInt(fields[1]), await client.getBalance({ address: account.address, blockNumber }), "proved balance");
    const of = await client.getProof({ address: token, storageKeys: [slot], blockNumber });
    const [, , storageRoot] = viem.fromRlp(proved(stateRoot, token, of.accountProof, rlp), "hex");
    const value = viem.fromRlp(proved(storageRoot, slot, of.storageProof[0].proof, rlp), "hex");
    const held = await client.readContract({ ...contract, functionName: "balanceOf", args: [account.address], blockNumber });
    equal(viem.hexToBigInt(value), held, "proved tokens");
    // A changed proof is none.
    const changed = [...own.accountProof];
    changed[0] = changed[0].slice(0, -1) + (changed[0].endsWith("0") ? "1" : "0");
    await rejects((async () => proved(stateRoot, account.address, changed, rlp))(), "a changed proof");
  }

  const stops = [];
  const heads = [];
  const transfers = [];
  stops.push(socket.watchBlocks({ onBlock: (block) => heads.push(block.hash), emitOnBegin: false }));
  stops.push(socket.watchContractEvent({ ...contract, eventName: "Transfer", onLogs: (logs) => transfers.push(...logs) }));
  // Both subscriptions are there before the block.
  await new Promise((done) => setTimeout(done, 500));

  const to = "0x00000000000000000000000000000000000a11ce";
  const before = await client.readContract({ ...contract, functionName: "balanceOf", args: [to] });
  const { request } = await client.simulateContract({ ...contract, functionName: "transfer", args: [to, 5n], account });
  const hash = await wallet.writeContract(request);
  const nonce = await client.getTransactionCount({ address: account.address });
  equal(await client.getTransactionCount({ address: account.address, blockTag: "pending" }), nonce + 1, "pending nonce");
  equal((await client.getTransaction({ hash })).blockHash, null, "block of what waits");
  const mined = await mine();
  const receipt = await client.waitForTransactionReceipt({ hash });
  equal(receipt.status, "success", "status");
  equal(receipt.blockHash, mined, "block of the receipt");
  equal(await client.readContract({ ...contract, functionName: "balanceOf", args: [to] }), before + 5n, "tokens");
  const paid = balance - (await client.getBalance({ address: account.address }));
  equal(paid, receipt.gasUsed * receipt.effectiveGasPrice, "price");
  await awaited("the news of the block", function look(done) {
    if (heads.includes(mined) && transfers.some((log) => log.transactionHash === hash)) done();
    else setTimeout(() => look(done), 20);
  });
  equal(heads[0], mined, "the first new head");

  const much = client.simulateContract({ ...contract, functionName: "transfer", args: [to, 1n << 200n], account });
  const reverted = await rejects(much, "a transfer of too much");
  holds(reverted.walk((error) => error instanceof viem.ContractFunctionRevertedError), String(reverted));
  const fees = await client.estimateFeesPerGas();
  holds(fees.maxFeePerGas > 0n, "fees are estimated");
  stops.forEach((stop) => stop());
});
