/** Numbers, units and text for people. */

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** A whole number with separators. */
export function count(value: number | bigint): string {
  return GROUPED.format(value);
}

/** A number with three significant digits and a prefix of its magnitude. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  for (const [unit, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]] as const) {
    if (size >= unit) {
      const scaled = value / (prefix === "k" ? 1e3 : unit);
      return `${digits(scaled)} ${prefix}`;
    }
  }
  return size >= 1000 ? count(value) : digits(value);
}

/** Three significant digits. */
export function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  return size >= 0.01 ? value.toFixed(2) : value.toPrecision(2);
}

/** A size in binary units. */
export function bytes(value: number): string {
  if (!Number.isFinite(value)) return "–";
  let unit = 0;
  let scaled = value;
  while (Math.abs(scaled) >= 1024 && unit < 5) {
    scaled /= 1024;
    unit++;
  }
  return `${unit === 0 ? count(scaled) : digits(scaled)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

/** A time of seconds in the unit that suits it. */
export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0 s";
  if (value < 1e-6) return `${digits(value * 1e9)} ns`;
  if (value < 1e-3) return `${digits(value * 1e6)} µs`;
  if (value < 1) return `${digits(value * 1e3)} ms`;
  return value < 120 ? `${digits(value)} s` : `${digits(value / 60)} min`;
}

/** A share of a whole. */
export function percent(part: number, whole: number): string {
  if (!(whole > 0)) return "–";
  const share = (part / whole) * 100;
  return share > 0 && share < 0.01 ? "< 0.01 %" : `${digits(share)} %`;
}

/** An amount of wei as decimal ether, without trailing zeros. */
export function ether(wei: bigint): string {
  const sign = wei < 0n ? "−" : "";
  const size = wei < 0n ? -wei : wei;
  const fraction = (size % 10n ** 18n).toString().padStart(18, "0").replace(/0+$/, "");
  return `${sign}${count(size / 10n ** 18n)}${fraction ? `.${fraction}` : ""}`;
}

/** An amount of wei as ether with a fixed number of decimals; further ones are cut off. Less than one of the last is written as that. */
export function etherCut(wei: bigint, places: number): string {
  const unit = 10n ** BigInt(18 - places);
  const [whole = "0", fraction = ""] = ether((wei / unit) * unit).split(".");
  const zero = wei > 0n && wei < unit;
  return zero ? `< ${`0.${"0".repeat(places - 1)}1`}` : `${whole}.${fraction.padEnd(places, "0")}`;
}

/** The date and time of a header's timestamp, UTC. */
export function time(timestamp: number): string {
  const date = new Date(timestamp * 1000);
  return Number.isNaN(date.getTime()) ? String(timestamp) : `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/**
 * Text that the chain's users wrote, for showing: characters that control, turn or hide text are written as escapes.
 * It is a text node wherever it stands, so this is about reading, not about scripts.
 */
export function printable(text: string, length = 80): string {
  const shown = text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`);
  return shown.length > length ? `${shown.slice(0, length)}…` : shown;
}

/** Bytes as text if they are UTF-8, else null. */
export function textOf(data: Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(data);
  } catch {
    return null;
  }
}

/** A long hexadecimal value with its middle left out. */
export function shortHex(hex: string, head = 8, tail = 6): string {
  return hex.length > head + tail + 3 ? `${hex.slice(0, head + 2)}…${hex.slice(-tail)}` : hex;
}

/** A whole count and the noun that agrees with it. */
export function many(value: number, noun: string, plural = `${noun}s`): string {
  return `${count(value)} ${value === 1 ? noun : plural}`;
}
