/** Chooses the block whose state is shown. */

import { useEffect, useState } from "preact/hooks";
import { blockName } from "../data/blocks.ts";

/** A field for a block and buttons to its neighbours. `change` is called with a number, hash or tag. */
export function BlockSelector(props: { at: string; change: (at: string) => void; kept?: readonly [number, number] | undefined }) {
  const [text, setText] = useState(props.at);
  useEffect(() => setText(props.at), [props.at]);
  const name = blockName(text);
  const number = /^[0-9]+$/.test(props.at) ? Number(props.at) : null;
  return (
    <form
      class="controls selector"
      onSubmit={(event) => {
        event.preventDefault();
        if (name !== null) props.change(name);
      }}
    >
      <label>
        At block
        <input type="text" value={text} onInput={(event) => setText(event.currentTarget.value)} aria-invalid={name === null} spellcheck={false} autocomplete="off" placeholder="number, hash or tag" />
      </label>
      <button type="submit">Show</button>
      {number !== null && (
        <>
          <button type="button" onClick={() => props.change(String(Math.max(0, number - 1)))} disabled={number === 0} aria-label="The block before">
            ←
          </button>
          <button type="button" onClick={() => props.change(String(number + 1))} aria-label="The block after">
            →
          </button>
        </>
      )}
      {props.at !== "latest" && (
        <button type="button" onClick={() => props.change("latest")}>
          latest
        </button>
      )}
      {name === null && <span class="check bad">A block is a number, a hash of 32 bytes, or latest, safe, finalized or earliest.</span>}
    </form>
  );
}
