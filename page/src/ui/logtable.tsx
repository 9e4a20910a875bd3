/** Logs, with topics and data as the chain has them. */

import type { Log } from "../verify/index.ts";
import { count } from "./format.ts";
import { AddressLink, BlockLink, Hex, TransactionLink, useSome } from "./parts.tsx";

/** Keccak-256 of `Transfer(address,address,uint256)` and `Approval(address,address,uint256)` (ERC-20). */
const EVENTS: Record<string, string> = {
  "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef": "Transfer",
  "0x8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925": "Approval",
};

/** Digits of data that are shown of one log. */
const DATA_SHOWN = 514;

function Topic(props: { topic: string }) {
  const address = /^0x0{24}[0-9a-f]{40}$/.test(props.topic) && !/^0x0{40}/.test(props.topic);
  return address ? <AddressLink address={`0x${props.topic.slice(26)}`} /> : <Hex hex={props.topic} head={14} tail={8} />;
}

export function Logs(props: { logs: readonly Log[]; withBlock?: boolean }) {
  const [some, more] = useSome(props.logs, 50);
  return (
    <>
      <ol class="logs">
        {some.map((log, i) => (
          <li key={`${log.blockHash} ${log.logIndex ?? i}`}>
            <p class="log-head">
              <span class="num log-index">{log.logIndex === undefined ? i : count(Number(log.logIndex))}</span>
              <AddressLink address={log.address} />
              {EVENTS[log.topics[0] ?? ""] && <span class="label">{EVENTS[log.topics[0] ?? ""]}</span>}
              {props.withBlock && log.blockNumber && (
                <span>
                  block <BlockLink number={log.blockNumber} />
                </span>
              )}
              {log.transactionHash && (
                <span>
                  transaction <TransactionLink hash={log.transactionHash} />
                </span>
              )}
            </p>
            <p class="topics">
              {log.topics.map((topic, n) => (
                <span key={n}>
                  <span class="unit">topic {n}</span> <Topic topic={topic} />
                </span>
              ))}
            </p>
            {log.data !== "0x" && (
              <p class="log-data">
                <span class="unit">data</span>{" "}
                <code class="hex whole">
                  {log.data.slice(0, DATA_SHOWN)}
                  {log.data.length > DATA_SHOWN && `… ${count((log.data.length - DATA_SHOWN) / 2)} more bytes`}
                </code>
              </p>
            )}
          </li>
        ))}
      </ol>
      {more}
    </>
  );
}
