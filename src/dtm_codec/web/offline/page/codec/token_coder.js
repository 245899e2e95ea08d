// The codes, range coded under the token statistics of a model (docs/bitstream.md, section 4).

import { sha256 } from "./checksums.js";
import { BitstreamError, ModelError } from "./errors.js";
import { RangeDecoder, RangeEncoder, TOTAL, table } from "./range_coder.js";

const MOST_CODES = 1 << 20;
const MOST_CLASSES = 1024;
const MOST_FREQUENCY = (TOTAL / 16) * 15;
const TOKENS_PER_BYTE = 86;
export const MAX_FINGERPRINT = 0xffff;

/** How often each class of codes follows each, and each code occurs in its class. */
export class TokenModel {
  /** classOf: (V,), transitions: (C x C,) row by row, members: (V,) */
  constructor(classOf, transitions, members) {
    this.classOf = Int16Array.from(classOf);
    this.transitions = Int32Array.from(transitions);
    this.members = Int32Array.from(members);
    this.classes = Math.round(Math.sqrt(transitions.length));
    this.#check();
    this.codesOf = Array.from({ length: this.classes }, () => []);
    this.rankOf = Int32Array.from(this.classOf, (kind, code) => this.codesOf[kind].push(code) - 1);
    this.classTables = this.codesOf.map((_, before) => this.#choice(this.#row(before)));
    this.memberTables = this.codesOf.map((codes) => this.#choice(codes.map((code) => this.members[code])));
    this.fingerprint = this.#fingerprint();
  }

  get codebookSize() {
    return this.classOf.length;
  }

  /** Bits of one code in fixed width. */
  get tokenBits() {
    return 32 - Math.clz32(this.codebookSize - 1);
  }

  #row(before) {
    return this.transitions.subarray(before * this.classes, (before + 1) * this.classes);
  }

  #check() {
    const [size, classes] = [this.codebookSize, this.classes];
    if (size < 2 || size > MOST_CODES || classes < 1 || classes > MOST_CLASSES) {
      throw new ModelError(
        `token statistics of ${size} codes in ${classes} classes; ` +
          `allowed: 2 ... ${MOST_CODES} in 1 ... ${MOST_CLASSES}`,
      );
    }
    if (this.members.length !== size || this.transitions.length !== classes ** 2) {
      throw new ModelError(
        `token statistics of ${size}, ${this.transitions.length}, ${this.members.length} numbers; allowed: V, C x C, V`,
      );
    }
    const used = new Set(this.classOf);
    if (used.size !== classes || [...used].some((kind) => kind < 0 || kind >= classes)) {
      throw new ModelError(`codes in ${used.size} classes; the token statistics have ${classes}`);
    }
  }

  /** A table, or null where there is nothing to choose. */
  #choice(frequencies) {
    let [least, most, sum] = [Infinity, -Infinity, 0];
    for (const frequency of frequencies) {
      [least, most] = [Math.min(least, frequency), Math.max(most, frequency)];
      sum += frequency;
    }
    const limit = frequencies.length > 1 ? MOST_FREQUENCY : TOTAL;
    if (least < 1 || most > limit || sum !== TOTAL) {
      throw new ModelError(
        `token frequencies ${least} ... ${most} with sum ${sum}; allowed: 1 ... ${limit} with sum ${TOTAL}`,
      );
    }
    return frequencies.length > 1 ? table(frequencies) : null;
  }

  #fingerprint() {
    const { classOf, transitions, members } = this;
    const view = new DataView(new ArrayBuffer(2 * classOf.length + 4 * (transitions.length + members.length)));
    classOf.forEach((kind, i) => view.setInt16(2 * i, kind, true));
    transitions.forEach((frequency, i) => view.setInt32(2 * classOf.length + 4 * i, frequency, true));
    members.forEach((frequency, i) =>
      view.setInt32(2 * classOf.length + 4 * (transitions.length + i), frequency, true),
    );
    const digest = sha256(new Uint8Array(view.buffer));
    return digest[0] * 256 + digest[1];
  }
}

/** (K,) codes -> bytes */
export function encodeTokens(codes, model) {
  const encoder = new RangeEncoder();
  let before = 0;
  for (const code of codes) {
    if (code >= model.codebookSize) {
      throw new BitstreamError(`code ${code}; the token statistics know 0 ... ${model.codebookSize - 1}`);
    }
    const kind = model.classOf[code];
    if (model.classTables[before]) encoder.encode(kind, model.classTables[before]);
    if (model.memberTables[kind]) encoder.encode(model.rankOf[code], model.memberTables[kind]);
    before = kind;
  }
  return encoder.finish();
}

/** Refuse more tokens than that many bytes can hold. */
export function checkTokens(tokens, length) {
  const most = TOKENS_PER_BYTE * length;
  if (tokens > most) {
    throw new BitstreamError(`${tokens} range coded tokens in ${length} bytes; allowed: at most ${most} tokens`);
  }
}

/** Bytes -> (K,) codes */
export function decodeTokens(bytes, model, tokens) {
  checkTokens(tokens, bytes.length);
  const decoder = new RangeDecoder(bytes);
  const codes = new Int32Array(tokens);
  let kind = 0;
  for (let i = 0; i < tokens; i++) {
    if (model.classTables[kind]) kind = decoder.decode(model.classTables[kind]);
    const members = model.memberTables[kind];
    codes[i] = model.codesOf[kind][members ? decoder.decode(members) : 0];
  }
  return codes;
}
