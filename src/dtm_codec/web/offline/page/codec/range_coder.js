// Range coding as in docs/bitstream.md, section 4: 64-bit state, 32-bit words, frequencies that sum to 2^24.
//
// A table is the left ends of its symbols and, last, the total: (n + 1) numbers from 0 to 2^24.

import { BitstreamError } from "./errors.js";

export const TOTAL = 1 << 24;
const TOTAL_BITS = 24n;
const WORD = 1n << 32n;
const MASK = (1n << 64n) - 1n;

/** (n,) frequencies -> (n + 1,) left ends. */
export function table(frequencies) {
  const ends = new Uint32Array(frequencies.length + 1);
  for (let symbol = 0; symbol < frequencies.length; symbol++) ends[symbol + 1] = ends[symbol] + frequencies[symbol];
  return ends;
}

export class RangeEncoder {
  #words = [];
  #low = 0n;
  #width = MASK;
  #empty = true;

  encode(symbol, ends) {
    this.#empty = false;
    const scale = this.#width >> TOTAL_BITS;
    this.#low += scale * BigInt(ends[symbol]);
    if (this.#low > MASK) {
      this.#carry();
      this.#low &= MASK;
    }
    this.#width = scale * BigInt(ends[symbol + 1] - ends[symbol]);
    if (this.#width < WORD) {
      this.#words.push(Number(this.#low >> 32n));
      this.#low = (this.#low << 32n) & MASK;
      this.#width <<= 32n;
    }
  }

  #carry() {
    let at = this.#words.length - 1;
    while (this.#words[at] === 0xffffffff) this.#words[at--] = 0;
    this.#words[at] += 1;
  }

  /** The shortest bytes that decode to the symbols whatever follows them, and of these the smallest. */
  finish() {
    if (this.#empty) return new Uint8Array(0);
    for (let dropped = 7n; ; dropped--) {
      const shift = 8n * dropped;
      let value = (this.#low + (1n << shift) - 1n) >> shift;
      if ((value + 1n) << shift > this.#low + this.#width) continue;
      if (value >> (64n - shift)) {
        this.#carry();
        value = 0n;
      }
      const head = 4 * this.#words.length;
      const bytes = new Uint8Array(head + 8);
      const view = new DataView(bytes.buffer);
      this.#words.forEach((word, i) => view.setUint32(4 * i, word));
      view.setBigUint64(head, value << shift);
      return bytes.subarray(0, bytes.length - Number(dropped));
    }
  }
}

export class RangeDecoder {
  #bytes;
  #at = 0;
  #low = 0n;
  #width = MASK;
  #value;

  constructor(bytes) {
    this.#bytes = bytes;
    this.#value = (this.#word() << 32n) | this.#word();
  }

  /** Beyond the end, bytes count as 0. */
  #word() {
    let word = 0;
    for (let i = 0; i < 4; i++) word = word * 256 + (this.#bytes[this.#at++] ?? 0);
    return BigInt(word);
  }

  decode(ends) {
    const scale = this.#width >> TOTAL_BITS;
    const found = ((this.#value - this.#low) & MASK) / scale;
    if (found >> TOTAL_BITS) throw new BitstreamError(`${this.#bytes.length} bytes that no range coder has written`);
    const symbol = symbolAt(ends, Number(found));
    this.#low = (this.#low + scale * BigInt(ends[symbol])) & MASK;
    this.#width = scale * BigInt(ends[symbol + 1] - ends[symbol]);
    if (this.#width < WORD) {
      this.#low = (this.#low << 32n) & MASK;
      this.#width <<= 32n;
      this.#value = ((this.#value << 32n) & MASK) | this.#word();
    }
    return symbol;
  }
}

/** The last symbol that begins at `place` or before. */
function symbolAt(ends, place) {
  let [low, high] = [0, ends.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (ends[middle] <= place) low = middle;
    else high = middle;
  }
  return low;
}
