/** The explorer page of a Cambium server: landmarks, navigation, and the view that the address names. */

import { Component, type ComponentChildren, render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { follow, live } from "./data/live.ts";
import { Store, useStore } from "./data/store.ts";
import { count } from "./ui/format.ts";
import { Failure, Title } from "./ui/parts.tsx";
import { type Route, to, useRoute } from "./ui/route.ts";
import { Search } from "./ui/search.tsx";
import { AccountView } from "./views/account.tsx";
import { BlockView, TransactionView } from "./views/block.tsx";
import { blockName } from "./data/blocks.ts";
import { FiguresView } from "./views/figures.tsx";
import { ClusterView, LayersView } from "./views/layers.tsx";
import { LogsView } from "./views/logs.tsx";
import { MapView } from "./views/map.tsx";
import { Now } from "./views/now.tsx";
import { isSlot, ProofView } from "./views/proof.tsx";
import { WalkView } from "./views/walk.tsx";

const PLACES = [
  ["", "Now"],
  ["layers", "Layers"],
  ["map", "Map"],
  ["block", "Head block"],
  ["logs", "Logs"],
  ["figures", "Figures"],
  ["shards", "Shards"],
] as const;

/** The colour scheme: the system's, or the one that was chosen here. */
const THEMES = ["system", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];

function storedTheme(): Theme {
  try {
    const stored = localStorage.getItem("theme");
    return THEMES.find((theme) => theme === stored) ?? "system";
  } catch {
    return "system";
  }
}

const theme = new Store<Theme>(storedTheme());

function applyTheme(): void {
  const chosen = theme.get();
  if (chosen === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", chosen);
}

function ThemeSwitch() {
  const chosen = useStore(theme);
  return (
    <label class="theme">
      <span class="sr">Colours</span>
      <select
        value={chosen}
        onChange={(event) => {
          const next = THEMES.find((it) => it === event.currentTarget.value) ?? "system";
          theme.set(next);
          applyTheme();
          try {
            localStorage.setItem("theme", next);
          } catch {
            // Without storage the choice lasts as long as the page.
          }
        }}
      >
        {THEMES.map((it) => (
          <option key={it} value={it} selected={it === chosen}>
            {it}
          </option>
        ))}
      </select>
    </label>
  );
}

function Connection() {
  const { connection, head } = useStore(live);
  const text = { connecting: "connecting", live: "live", lost: "no answer" }[connection];
  return (
    <p class={`connection ${connection}`}>
      <span class="dot" aria-hidden="true" />
      <span>{text}</span>
      {head && <span class="num"> · block {count(head.number)}</span>}
    </p>
  );
}

function Unknown(props: { what: string }) {
  return (
    <Title explain={props.what}>
      Nothing is here
    </Title>
  );
}

function View(props: { route: Route }) {
  const { path, query } = props.route;
  const [place = "", name = "", tab] = path;
  const at = blockName(query.get("at") ?? "latest") ?? "latest";
  const address = /^0x[0-9a-fA-F]{40}$/.test(name) ? name.toLowerCase() : null;
  const slotText = query.get("slot");
  const slot = slotText !== null && isSlot(slotText) ? slotText : null;
  switch (place) {
    case "":
      return <Now />;
    case "layers":
      return <LayersView />;
    case "shards":
      return <ClusterView />;
    case "map":
      return <MapView shard={path[1]} />;
    case "figures":
      return <FiguresView />;
    case "logs":
      return <LogsView query={query} />;
    case "block": {
      const block = blockName(name || "latest");
      return block === null ? <Unknown what="A block is a number, a hash of 32 bytes, or a tag such as latest." /> : <BlockView name={block} tab={tab ?? ""} />;
    }
    case "tx":
      return /^0x[0-9a-fA-F]{64}$/.test(name) ? <TransactionView hash={name.toLowerCase()} /> : <Unknown what="A transaction’s hash has 32 bytes." />;
    case "address":
      return address ? <AccountView key={address} address={address} tab={tab} at={at} slot={slot} /> : <Unknown what="An address has 20 bytes." />;
    case "proof":
      return address ? <ProofView address={address} slot={slot} at={at} /> : <Unknown what="An address has 20 bytes." />;
    case "walk":
      return address ? <WalkView address={address} slot={slot} /> : <Unknown what="An address has 20 bytes." />;
    default:
      return <Unknown what="The page has no such place. Choose one of those above, or look something up." />;
  }
}

/** Shows why a view could not be drawn, such as for an answer of another shape, instead of an empty page. */
class Guard extends Component<{ children: ComponentChildren }, { error: unknown }> {
  override state = { error: undefined };

  static override getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    const { error } = this.state as { error: unknown };
    if (error === undefined) return this.props.children;
    return (
      <>
        <Title>This can’t be shown</Title>
        <Failure error={error} what="an answer of the server" />
      </>
    );
  }
}

function App() {
  const route = useRoute();
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  const place = route.path.join("/");
  useEffect(() => {
    document.title = place ? `${place} · Cambium` : "Cambium";
    // A new place is read from its beginning, also by those who hear it.
    if (!first.current) {
      scrollTo(0, 0);
      main.current?.focus({ preventScroll: true });
    }
    first.current = false;
  }, [place]);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <header class="top">
        <a class="brand" href={to([])}>
          <svg viewBox="0 0 24 24" aria-hidden="true">
            <circle cx="12" cy="12" r="10.5" />
            <circle cx="12" cy="12" r="6.5" class="ring" />
            <circle cx="12" cy="12" r="2.5" />
          </svg>
          Cambium
        </a>
        <Search />
        <Connection />
        <ThemeSwitch />
      </header>
      <nav class="places" aria-label="Places">
        {PLACES.map(([path, title]) => (
          <a key={title} href={to(path ? [path] : [])} aria-current={(route.path[0] ?? "") === path ? "page" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <main id="main" tabIndex={-1} ref={main}>
        <Guard key={place}>
          <View route={route} />
        </Guard>
      </main>
      <footer class="foot">
        <p>
          This page comes whole from the server that it shows, and asks nobody else. It trusts the hash of a block alone: headers, proofs, receipts and bodies are checked in this
          browser.
        </p>
      </footer>
    </>
  );
}

applyTheme();
render(<App />, document.getElementById("page")!);
follow();
