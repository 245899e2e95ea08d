// The keep mask, range coded under an adaptive model of spans (docs/bitstream.md, section 4).

import { BitstreamError } from "./errors.js";
import { RangeDecoder, RangeEncoder, TOTAL } from "./range_coder.js";

const LONGEST_SPAN = 6;
const LONGEST_BEFORE = 4;
/** Weights of "kept" at the start: a row for each span so far, a column for each last span. */
const PRIOR = [
  [4, 64, 26, 15, 12],
  [5, 45, 43, 30, 13],
  [11, 38, 51, 44, 19],
  [11, 28, 42, 45, 25],
  [11, 23, 33, 38, 26],
  [6, 17, 19, 21, 17],
].flat();
const PRIOR_TOTAL = 80;
const OBSERVATION = 16;
const MOST = 1536;
const ONE = 4096;
const LEAST = 64;
const STEPS_PER_BYTE = 353;

class KeepModel {
  #kept = PRIOR.slice();
  #masked = PRIOR.map((kept) => PRIOR_TOTAL - kept);
  #span = 1;
  #before = 0;
  #context = 0;
  #ends = new Uint32Array([0, 0, TOTAL]);

  /** For the next step: symbol 1 = kept. */
  table() {
    const kept = this.#kept[this.#context];
    const probability = Math.floor((ONE * kept) / (kept + this.#masked[this.#context]));
    this.#ends[1] = (ONE - Math.min(Math.max(probability, LEAST), ONE - LEAST)) * ONE;
    return this.#ends;
  }

  /** Learn what the step was. */
  update(kept) {
    const context = this.#context;
    if (kept) {
      this.#kept[context] += OBSERVATION;
      this.#before = Math.min(this.#span, LONGEST_BEFORE);
      this.#span = 1;
    } else {
      this.#masked[context] += OBSERVATION;
      this.#span = Math.min(this.#span + 1, LONGEST_SPAN);
    }
    if (this.#kept[context] + this.#masked[context] > MOST) {
      this.#kept[context] = (this.#kept[context] + 1) >> 1;
      this.#masked[context] = (this.#masked[context] + 1) >> 1;
    }
    this.#context = (this.#span - 1) * (LONGEST_BEFORE + 1) + this.#before;
  }
}

/** (N,) of 0 and 1, the first 1 -> bytes */
export function encodeMask(mask) {
  const model = new KeepModel();
  const encoder = new RangeEncoder();
  for (let step = 1; step < mask.length; step++) {
    encoder.encode(mask[step], model.table());
    model.update(mask[step]);
  }
  return encoder.finish();
}

/** Bytes -> (N,) of 0 and 1. The bytes must be able to hold so many steps before anything is reserved for them. */
export function decodeMask(bytes, steps) {
  const most = STEPS_PER_BYTE * bytes.length + 1;
  if (steps > most) {
    throw new BitstreamError(`a mask of ${steps} steps in ${bytes.length} bytes; allowed: at most ${most} steps`);
  }
  const model = new KeepModel();
  const decoder = new RangeDecoder(bytes);
  const mask = new Uint8Array(steps);
  mask[0] = 1;
  for (let step = 1; step < steps; step++) {
    mask[step] = decoder.decode(model.table());
    model.update(mask[step]);
  }
  return mask;
}
