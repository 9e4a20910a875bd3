/** Bytes and the hexadecimal text in which JSON-RPC has them. */

/** Reads `0x` and an even number of hexadecimal digits. Throws an `Error` that quotes the beginning of anything else. */
export function bytesOf(hex: string): Uint8Array {
  if (typeof hex !== "string" || !/^0x(?:[0-9a-fA-F]{2})*$/.test(hex)) {
    throw new Error(`not hexadecimal bytes: ${String(hex).slice(0, 40)}`);
  }
  const bytes = new Uint8Array(hex.length / 2 - 1);
  for (let i = 0; i < bytes.length; i++) bytes[i] = Number.parseInt(hex.slice(2 * i + 2, 2 * i + 4), 16);
  return bytes;
}

/** Reads bytes of one length. Throws an `Error` that names both lengths. */
export function bytesOfLength(hex: string, length: number): Uint8Array {
  const bytes = bytesOf(hex);
  if (bytes.length !== length) throw new Error(`${length} bytes expected, not ${bytes.length}`);
  return bytes;
}

const DIGITS = Array.from({ length: 256 }, (_, i) => i.toString(16).padStart(2, "0"));

/** Writes `0x` and two lower-case digits a byte. */
export function hexOf(bytes: Uint8Array): string {
  let hex = "0x";
  for (const byte of bytes) hex += DIGITS[byte];
  return hex;
}

/** Whether two byte strings are the same. */
export function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

/** Joins byte strings. */
export function concat(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Big-endian bytes of a number without leading zeros: none for 0. */
export function minimalBytes(value: bigint): Uint8Array {
  if (value < 0n) throw new Error(`a negative number: ${value}`);
  if (value === 0n) return new Uint8Array(0);
  const digits = value.toString(16);
  return bytesOf(`0x${digits.length % 2 ? "0" : ""}${digits}`);
}

/** The number whose big-endian bytes these are. */
export function numberOf(bytes: Uint8Array): bigint {
  return bytes.length === 0 ? 0n : BigInt(hexOf(bytes));
}

/** The two nibbles of each byte, high one first. */
export function nibblesOf(bytes: Uint8Array): number[] {
  const nibbles: number[] = [];
  for (const byte of bytes) nibbles.push(byte >> 4, byte & 15);
  return nibbles;
}

/** One digit a nibble. */
export function nibbleText(nibbles: readonly number[]): string {
  return nibbles.map((nibble) => nibble.toString(16)).join("");
}
