/** A block: its transactions, its logs shown to be complete, its schedule, its state diff and its header. */

import { call, valueOf, batch } from "../data/rpc.ts";
import { type CheckedBlock, loadBlock } from "../data/blocks.ts";
import { useLoad } from "../data/load.ts";
import type { BlockAnswer, ReceiptAnswer, Transaction } from "../data/types.ts";
import { BlockSelector } from "../ui/blockselector.tsx";
import { count, many, percent, textOf } from "../ui/format.ts";
import { Logs } from "../ui/logtable.tsx";
import { AddressLink, Answer, BlockLink, Check, Ether, Facts, Foreign, Hex, Section, Table, Tabs, Time, Title, TransactionLink, useSome } from "../ui/parts.tsx";
import { go, to } from "../ui/route.ts";
import { APPENDED, bytesOf, checkBody, checkReceipts } from "../verify/index.ts";
import { DiffView } from "./diff.tsx";
import { ScheduleView } from "./schedule.tsx";

const VIEWS = [
  ["", "Transactions"],
  ["logs", "Logs"],
  ["schedule", "Schedule"],
  ["diff", "State diff"],
  ["header", "Header and checks"],
] as const;

function Summary(props: { checked: CheckedBlock }) {
  const { block, error } = props.checked;
  let extra: Uint8Array | null = null;
  try {
    extra = bytesOf(block.extraData);
  } catch {
    // The header's check says what is wrong with it.
  }
  const text = extra?.length ? textOf(extra) : null;
  return (
    <Facts
      rows={[
        ["hash", <Hex hex={block.hash} whole />],
        ["header", <Check error={error} good="Keccak-256 of its fields is the hash" />],
        ["timestamp", <Time timestamp={Number(block.timestamp)} />],
        ["gas used", <span class="num">{count(BigInt(block.gasUsed))} of {count(BigInt(block.gasLimit))} ({percent(Number(block.gasUsed), Number(block.gasLimit))})</span>],
        typeof block.baseFeePerGas === "string" && ["base fee", <span class="num">{count(BigInt(block.baseFeePerGas))} <span class="unit">wei</span></span>],
        ["fee recipient", <AddressLink address={block.miner} at={Number(block.number)} />],
        extra !== null && extra.length > 0 && ["extra data", text !== null ? <Foreign text={text} /> : <Hex hex={block.extraData} whole />],
      ]}
    />
  );
}

function Transactions(props: { block: BlockAnswer }) {
  const transactions = props.block.transactions.filter((it): it is Transaction => typeof it === "object");
  const [some, more] = useSome(transactions, 40);
  return (
    <Section title={many(transactions.length, "transaction")} explain="In the order of their execution.">
      {transactions.length > 0 && (
        <Table
          name="Transactions"
          columns={["index", "hash", "from", "to", "value", "gas limit", "type", "input"]}
          numeric={[0, 4, 5, 6, 7]}
          rows={some.map((it) => ({
            key: it.hash,
            cells: [
              Number(it.transactionIndex),
              <TransactionLink hash={it.hash} />,
              <AddressLink address={it.from} />,
              it.to === null ? "creates a contract" : <AddressLink address={it.to} />,
              <Ether wei={BigInt(it.value)} places={6} />,
              count(BigInt(it.gas)),
              Number(it.type),
              it.input === "0x" ? "" : many((it.input.length - 2) / 2, "byte"),
            ],
          }))}
        />
      )}
      {more}
      {props.block.withdrawals && props.block.withdrawals.length > 0 && (
        <details>
          <summary>{many(props.block.withdrawals.length, "withdrawal")}</summary>
          <Table
            name="Withdrawals"
            columns={["index", "validator", "address", "amount"]}
            numeric={[0, 1, 3]}
            rows={props.block.withdrawals.map((it) => ({
              key: it.index,
              cells: [count(BigInt(it.index)), count(BigInt(it.validatorIndex)), <AddressLink address={it.address} />, <Ether wei={BigInt(it.amount) * 10n ** 9n} />],
            }))}
          />
        </details>
      )}
    </Section>
  );
}

function BlockLogs(props: { block: BlockAnswer; headerError: string | null }) {
  const { block } = props;
  const loaded = useLoad(`receipts ${block.hash}`, (signal) => call<ReceiptAnswer[] | null>(["eth_getBlockReceipts", block.hash], signal));
  return (
    <Answer loaded={loaded} what="the receipts">
      {(receipts) => {
        if (receipts === null) return <p class="notice">The server keeps no receipts of this block.</p>;
        const error = props.headerError ?? checkReceipts(receipts, block.receiptsRoot);
        const logs = receipts.flatMap((receipt) => receipt.logs);
        return (
          <Section
            title={many(logs.length, "log")}
            explain="The page encodes all receipts of the block, builds their trie, and compares its root with the header’s: a log that is left out, added or changed gives another root."
          >
            <div class={`verdict ${error === null ? "good" : "bad"}`} role="status">
              <Check error={error} good={`complete: the ${many(receipts.length, "receipt")} have the header’s receipts root`} />
            </div>
            <p class="root-line">
              <span>receipts root</span> <code>{block.receiptsRoot}</code>
            </p>
            <Logs logs={logs} />
          </Section>
        );
      }}
    </Answer>
  );
}

const HEADER_FIELDS = [
  "parentHash", "sha3Uncles", "miner", "stateRoot", "transactionsRoot", "receiptsRoot", "logsBloom", "difficulty", "number", "gasLimit",
  "gasUsed", "timestamp", "extraData", "mixHash", "nonce",
];

function HeaderView(props: { checked: CheckedBlock }) {
  const { block, error } = props.checked;
  const raw = useLoad(`raw ${block.hash}`, (signal) => call<string>(["debug_getRawBlock", block.number], signal));
  const fields = [...HEADER_FIELDS.map((name) => [name, ""] as const), ...APPENDED.map(([name, , fork]) => [name, fork] as const)];
  return (
    <>
      <Section title="The header" explain="Its fields in the order of their encoding. The page encodes them by RLP; Keccak-256 of that is the block’s hash.">
        <div class={`verdict ${error === null ? "good" : "bad"}`} role="status">
          <Check error={error} good="the fields have the block’s hash" />
        </div>
        <Facts
          rows={fields.map(([name, fork]) => {
            const value = block[name];
            if (typeof value !== "string") return null;
            const number = /^0x(0|[1-9a-f][0-9a-f]*)$/.test(value) && value.length < 20 && name !== "nonce" && name !== "extraData";
            return [
              name,
              <span>
                {name === "parentHash" ? (
                  <a href={to(["block", value])}>
                    <Hex hex={value} whole />
                  </a>
                ) : number ? (
                  <span class="num">{count(BigInt(value))}</span>
                ) : (
                  <Hex hex={value} whole={name !== "logsBloom"} head={40} tail={20} />
                )}
                {fork && <span class="unit"> {fork}</span>}
              </span>,
            ] as const;
          })}
        />
      </Section>
      <Section title="The body" explain="The page decodes the block’s bytes and computes the roots of its transactions and withdrawals, and the hash of its ommers.">
        <Answer loaded={raw} what="the block’s bytes">
          {(hex) => {
            const bytes = bytesOf(hex);
            const body = checkBody(bytes, block);
            return (
              <Facts
                rows={[
                  ["body", <Check error={body.error} good="it is the one to which the header commits" />],
                  ["transactions", <span class="num">{count(body.transactions)}</span>],
                  ["ommers", <span class="num">{count(body.ommers)}</span>],
                  body.withdrawals !== null && ["withdrawals", <span class="num">{count(body.withdrawals)}</span>],
                  ["size", <span class="num">{count(bytes.length)} bytes</span>],
                ]}
              />
            );
          }}
        </Answer>
      </Section>
    </>
  );
}

function View(props: { tab: string; checked: CheckedBlock }) {
  const { block, error } = props.checked;
  switch (props.tab) {
    case "logs":
      return <BlockLogs block={block} headerError={error} />;
    case "schedule":
      return <ScheduleView key={block.hash} block={block} />;
    case "diff":
      return <DiffView block={block} />;
    case "header":
      return <HeaderView checked={props.checked} />;
    default:
      return (
        <>
          <Summary checked={props.checked} />
          <Transactions block={block} />
        </>
      );
  }
}

export function BlockView(props: { name: string; tab: string }) {
  const loaded = useLoad(`block ${props.name}`, (signal) => loadBlock(props.name, true, signal));
  const place = (tab: string) => to(tab ? ["block", props.name, tab] : ["block", props.name]);
  return (
    <Answer loaded={loaded} what={`block ${props.name}`}>
      {(checked) => {
        const number = Number(checked.block.number);
        return (
          <>
            <Title kind="Block">
              <span class="num">{count(number)}</span>
              {checked.error !== null && <Check error={checked.error} good="" />}
            </Title>
            <BlockSelector at={String(number)} change={(at) => go(to(props.tab ? ["block", at, props.tab] : ["block", at]))} />
            <Tabs name="Views of the block" tabs={VIEWS.map(([tab, title]) => [title, place(tab), props.tab === tab])} />
            <View tab={props.tab} checked={checked} />
          </>
        );
      }}
    </Answer>
  );
}

interface LoadedTransaction {
  transaction: Transaction;
  receipt: ReceiptAnswer | null;
  /** Whether the receipt is in its block, checked against the header's receipts root. */
  check: string | null | undefined;
}

async function loadTransaction(hash: string, signal: AbortSignal): Promise<LoadedTransaction> {
  const [found, got] = await batch(
    [
      ["eth_getTransactionByHash", hash],
      ["eth_getTransactionReceipt", hash],
    ],
    signal,
  );
  if (found && "error" in found) throw found.error;
  const transaction = valueOf<Transaction | null>(found);
  if (!transaction) throw new Error("The chain has no such transaction, or the server has no index of transactions.");
  const receipt = valueOf<ReceiptAnswer | null>(got) ?? null;
  if (receipt === null || transaction.blockHash === null) return { transaction, receipt, check: undefined };
  const [{ block, error }, receipts] = await Promise.all([
    loadBlock(transaction.blockHash, false, signal),
    call<ReceiptAnswer[] | null>(["eth_getBlockReceipts", transaction.blockHash], signal).catch(() => null),
  ]);
  if (receipts === null) return { transaction, receipt, check: undefined };
  // The receipt that is shown stands in its place among those that are checked.
  const all = receipts.map((it, i) => (i === Number(transaction.transactionIndex) ? receipt : it));
  return { transaction, receipt, check: error ?? checkReceipts(all, block.receiptsRoot) };
}

export function TransactionView(props: { hash: string }) {
  const loaded = useLoad(`tx ${props.hash}`, (signal) => loadTransaction(props.hash, signal));
  return (
    <>
      <Title kind="Transaction">
        <Hex hex={props.hash} whole />
      </Title>
      <Answer loaded={loaded} what="the transaction">
        {({ transaction, receipt, check }) => {
          const at = transaction.blockNumber === null ? null : Number(transaction.blockNumber);
          const fee = receipt?.effectiveGasPrice ? BigInt(receipt.gasUsed) * BigInt(receipt.effectiveGasPrice) : null;
          return (
            <>
              <Facts
                rows={[
                  ["block", at === null ? "it waits for one" : <span><BlockLink number={at} /> <span class="unit">at index {Number(transaction.transactionIndex)}</span></span>],
                  receipt && ["outcome", receipt.status === undefined ? "before Byzantium, receipts had none" : receipt.status === "0x1" ? <span class="check good">succeeded</span> : <span class="check bad">failed: its changes were undone, its gas was paid</span>],
                  receipt && ["receipt", <Check error={check} good="it is in the block: all receipts have the header’s receipts root" unknown="not checked: the server gave not all receipts of the block" />],
                  ["from", <AddressLink address={transaction.from} at={at} whole />],
                  ["to", transaction.to === null ? <span>creates {receipt?.contractAddress ? <AddressLink address={receipt.contractAddress} at={at} whole /> : "a contract"}</span> : <AddressLink address={transaction.to} at={at} whole />],
                  ["value", <Ether wei={BigInt(transaction.value)} />],
                  ["nonce", <span class="num">{count(BigInt(transaction.nonce))}</span>],
                  ["type", <span class="num">{Number(transaction.type)}</span>],
                  ["gas", <span class="num">{receipt ? `${count(BigInt(receipt.gasUsed))} used of ` : ""}{count(BigInt(transaction.gas))}</span>],
                  fee !== null && ["fee", <Ether wei={fee} />],
                  transaction.accessList && transaction.accessList.length > 0 && ["access list", many(transaction.accessList.length, "account")],
                  transaction.blobVersionedHashes && ["blobs", many(transaction.blobVersionedHashes.length, "blob")],
                  transaction.authorizationList && ["authorizations", count(transaction.authorizationList.length)],
                ]}
              />
              {transaction.input !== "0x" && (
                <Section title="Input" explain={many((transaction.input.length - 2) / 2, "byte")}>
                  <div class="scroll tall" tabIndex={0} role="region" aria-label="Input">
                    <code class="bytes">{transaction.input.slice(2, 4098)}{transaction.input.length > 4098 && "…"}</code>
                  </div>
                </Section>
              )}
              {receipt && (
                <Section
                  title={many(receipt.logs.length, "log")}
                  explain={
                    at !== null && (
                      <a href={to(["block", at, "logs"])}>All logs of its block</a>
                    )
                  }
                >
                  <Logs logs={receipt.logs} />
                </Section>
              )}
            </>
          );
        }}
      </Answer>
    </>
  );
}

