/** The field that finds whatever is named: a block, a transaction or an account. */

import { useState } from "preact/hooks";
import { batch, valueOf } from "../data/rpc.ts";
import { blockName } from "../data/blocks.ts";
import { go, to } from "./route.ts";

/** Whether a hash is a block's or a transaction's. */
async function kindOfHash(hash: string): Promise<"block" | "tx" | null> {
  const [block, transaction] = await batch([
    ["eth_getBlockByHash", hash, false],
    ["eth_getTransactionByHash", hash],
  ]);
  if (valueOf(block)) return "block";
  return valueOf(transaction) ? "tx" : null;
}

export function Search() {
  const [text, setText] = useState("");
  const [message, setMessage] = useState("");
  const find = async () => {
    const what = text.trim();
    setMessage("");
    if (/^0x[0-9a-fA-F]{40}$/.test(what)) return go(to(["address", what.toLowerCase()]));
    if (/^0x[0-9a-fA-F]{64}$/.test(what)) {
      try {
        const kind = await kindOfHash(what.toLowerCase());
        if (kind === null) return setMessage("No block and no transaction of the chain has this hash.");
        return go(to([kind, what.toLowerCase()]));
      } catch (error) {
        return setMessage(error instanceof Error ? error.message : String(error));
      }
    }
    const block = blockName(what);
    if (block !== null) return go(to(["block", block]));
    setMessage("Write an address, a hash of a block or transaction, a block’s number, or a tag such as latest.");
  };
  return (
    <form
      class="search"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        void find();
      }}
    >
      <label class="sr" for="search">
        Address, hash, block number or tag
      </label>
      <input
        id="search"
        type="search"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setMessage("");
        }}
        placeholder="address, hash, block number or tag"
        spellcheck={false}
        autocomplete="off"
      />
      <button type="submit">Look up</button>
      <p class="search-message" role="status">
        {message}
      </p>
    </form>
  );
}
