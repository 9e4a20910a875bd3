/** What a block changed in the state. */

import { callAbout } from "../data/blocks.ts";
import { useLoad } from "../data/load.ts";
import type { AccountDiff, BlockAnswer, Change, Diff } from "../data/types.ts";
import { count, ether, etherCut, many } from "../ui/format.ts";
import { AddressLink, Answer, Hex, Section, useSome } from "../ui/parts.tsx";
import { to } from "../ui/route.ts";
import { slotText } from "./proof.tsx";

const number = (hex: string) => BigInt(hex === "0x" ? "0x0" : hex);

function Pair(props: { name: string; old: string; now: string; title?: string; difference?: string | undefined }) {
  return (
    <p class="pair" title={props.title}>
      <span class="unit">{props.name}</span>
      <del>
        <span class="sr">was </span>
        {props.old}
      </del>
      <span aria-hidden="true">→</span>
      <ins>
        <span class="sr">is now </span>
        {props.now}
      </ins>
      {props.difference && <span class="num difference">{props.difference}</span>}
    </p>
  );
}

/** All decimals, so that balances line up. */
function exact(wei: bigint): string {
  return wei === 0n ? "0" : etherCut(wei, 18);
}

function Balance(props: { change: Change }) {
  const [old, now] = props.change.map(number) as [bigint, bigint];
  const difference = now - old;
  return <Pair name="balance" old={exact(old)} now={exact(now)} difference={`${difference > 0n ? "+" : ""}${ether(difference)} ETH`} />;
}

function word(hex: string): string {
  const value = number(hex);
  const text = value.toString(16);
  return value < 2n ** 64n ? `0x${text}` : `0x${text.slice(0, 14)}…${text.slice(-8)}`;
}

function Slots(props: { account: AccountDiff; at: number }) {
  const { account } = props;
  const [some, more] = useSome(account.slots, 20);
  return (
    <div class="slots">
      <h3>
        {many(account.slots.length, "slot")}
        {account.moreSlots && " and more"}
      </h3>
      {some.map((slot) => (
        <p class="pair" key={slot.path} title={`${slot.value[0]} → ${slot.value[1]}`}>
          {slot.key !== null && account.address !== null ? (
            <a href={to(["address", account.address], { slot: slotText(slot.key), at: props.at })}>
              <code>{word(slot.key)}</code>
            </a>
          ) : (
            <code title="the slot’s hashed key: the key is not known">#{slot.path.slice(2, 14)}…</code>
          )}
          <del>
            <span class="sr">was </span>
            {word(slot.value[0])}
          </del>
          <span aria-hidden="true">→</span>
          <ins>
            <span class="sr">is now </span>
            {word(slot.value[1])}
          </ins>
        </p>
      ))}
      {more}
    </div>
  );
}

function AccountChange(props: { account: AccountDiff; at: number }) {
  const { account } = props;
  return (
    <li class="account-diff">
      <p class="diff-head">
        {account.address !== null ? <AddressLink address={account.address} at={props.at} /> : <code title="the hashed address: the address is not known">#{account.path.slice(2, 26)}…</code>}
        {account.created && <span class="label good">created</span>}
        {account.deleted && <span class="label bad">deleted</span>}
      </p>
      {account.balance && <Balance change={account.balance} />}
      {account.nonce && <Pair name="nonce" old={count(number(account.nonce[0]))} now={count(number(account.nonce[1]))} />}
      {account.codeHash && (
        <p class="pair">
          <span class="unit">code hash</span>
          <del>
            <span class="sr">was </span>
            <Hex hex={account.codeHash[0]} />
          </del>
          <span aria-hidden="true">→</span>
          <ins>
            <span class="sr">is now </span>
            <Hex hex={account.codeHash[1]} />
          </ins>
        </p>
      )}
      {account.slots.length > 0 && <Slots account={account} at={props.at} />}
    </li>
  );
}

function Accounts(props: { diff: Diff }) {
  const { diff } = props;
  const [some, more] = useSome(diff.accounts, 50);
  const slots = diff.accounts.reduce((sum, it) => sum + it.slots.length, 0);
  const created = diff.accounts.filter((it) => it.created).length;
  const deleted = diff.accounts.filter((it) => it.deleted).length;
  return (
    <>
      <p class="num explain">
        {many(diff.accounts.length, "account")}
        {diff.more && " and more, which are not shown"}: {count(created)} created, {count(deleted)} deleted; {many(slots, "slot")}.
      </p>
      <ol class="diff">
        {some.map((account) => (
          <AccountChange key={account.path} account={account} at={diff.number} />
        ))}
      </ol>
      {more}
    </>
  );
}

export function DiffView(props: { block: BlockAnswer }) {
  const loaded = useLoad(`diff ${props.block.hash}`, (signal) => callAbout<Diff>("cambium_diff", props.block, signal));
  return (
    <Section
      title="State diff"
      explain="All that the block changed, from the changesets in the block log: the value before and after. An account or slot whose key the server does not know is shown by its hash, with #."
    >
      <Answer loaded={loaded} what="the state diff">
        {(diff) => <Accounts diff={diff} />}
      </Answer>
    </Section>
  );
}
