// The network between its graphs (docs/onnx.md): frames, selection, positions, phases, overlap-add.

import { ModelError } from "./errors.js";
import { positionsOf, stepsOf } from "./layout.js";
import { cosineSteps, keep } from "./ple.js";
import { calibrate, tokensForBitrate } from "./rate.js";

/** about, config: graphs.json and config.json. run(name, inputs): a graph on arrays, one row after the other.
 *  block: rows that front end, quantizer and head see at a time; piece: rows that a stack answers at a time. */
export class Model {
  constructor(about, config, tokenModel, { block, piece }, run) {
    this.about = about;
    this.config = config;
    this.tokenModel = tokenModel;
    this.block = block;
    this.piece = piece;
    this.run = run;
    this.layout = {
      sampleRate: config.sample_rate,
      hopLength: config.hop_length,
      tokenBits: 32 - Math.clz32(config.quantizer.codebook_size - 1),
      stride: null,
    };
  }

  /** What every bitrate of one recording shares. (T,) -> { numSamples, z1 (N x D,), statistics (N,) } */
  async analyse(samples, onShare = () => {}) {
    const { hop_length: hop, dim } = this.config;
    const [size, steps] = [4 * hop, stepsOf(this.layout, samples.length)];
    const padded = new Float32Array(steps * hop + size - hop);
    padded.set(samples, (size - hop) / 2);
    const x = new Float32Array(steps * dim);
    for (const [start, end] of blocks(steps, this.block)) {
      const frames = new Float32Array((end - start) * size);
      for (let t = start; t < end; t++) frames.set(padded.subarray(t * hop, t * hop + size), (t - start) * size);
      x.set(await this.run("front_end", { frames }), start * dim);
      onShare((0.5 * end) / steps);
    }
    const z1 = await this.#stack("enc1", x, counted(steps), (share) => onShare(0.5 + 0.5 * share));
    return { numSamples: samples.length, z1, statistics: cosineSteps(z1, dim) };
  }

  /** An utterance as container.js writes it, at a total of `bitrate` bits a second. */
  async encode({ numSamples, z1, statistics }, bitrate, onShare = () => {}) {
    const { selector, dim } = this.config;
    const options = { sMax: selector.s_max, firstCrossing: selector.first_crossing };
    const target = tokensForBitrate(bitrate, numSamples, this.layout, selector.s_max);
    const { mask } = calibrate((tau) => keep(statistics, tau, options), target);
    const positions = positionsOf(mask);
    const kept = new Float32Array(positions.length * dim);
    positions.forEach((step, token) => kept.set(z1.subarray(step * dim, (step + 1) * dim), token * dim));
    const z2 = await this.#stack("enc2", kept, this.#stage2(positions), (share) => onShare(0.8 * share));
    const codes = new Int32Array(positions.length);
    for (const [start, end] of blocks(codes.length, this.block)) {
      const found = await this.run("quantize", { z2: z2.subarray(start * dim, end * dim) });
      found.forEach((code, i) => (codes[start + i] = Number(code)));
      onShare(0.8 + (0.2 * end) / codes.length);
    }
    return { codes, mask, numSamples, modelId: this.about.model_id, layout: this.layout };
  }

  /** Speech, (numSamples,). */
  async decode({ codes, mask, numSamples, modelId, layout }, onShare = () => {}) {
    this.#checkMine(codes, modelId, layout);
    const { dim } = this.config;
    const z2 = new Float32Array(codes.length * dim);
    for (const [start, end] of blocks(codes.length, this.block)) {
      const own = BigInt64Array.from(codes.subarray(start, end), BigInt);
      z2.set(await this.run("dequantize", { codes: own }), start * dim);
    }
    const h = await this.#stack("dec1", z2, this.#stage2(positionsOf(mask)), (share) => onShare(0.4 * share));
    const z1 = await this.#upsample(h, mask);
    const y = await this.#stack("dec2", z1, counted(mask.length), (share) => onShare(0.4 + 0.3 * share));
    const samples = await this.#synthesize(y, mask.length, (share) => onShare(0.7 + 0.3 * share));
    return samples.slice(0, numSamples);
  }

  #checkMine(codes, modelId, layout) {
    if (modelId !== this.about.model_id) {
      throw new ModelError(`encoded by model '${modelId}'; this page has model '${this.about.model_id}'`);
    }
    for (const [name, value] of Object.entries(layout)) {
      if (value !== this.layout[name])
        throw new ModelError(`${name} = ${value} in the file; this model has ${this.layout[name]}`);
    }
    const size = this.config.quantizer.codebook_size;
    const wrong = codes.find((code) => code >= size);
    if (wrong !== undefined) throw new ModelError(`code ${wrong}; allowed: 0 ... ${size - 1}`);
  }

  /** Positions that Stage 2 sees. */
  #stage2(positions) {
    return this.config.stage2_positions === "rank" ? counted(positions.length) : positions;
  }

  /** A stack in pieces, each with as many rows around it as it can see. (S x D,), (S,) -> (S x D,) */
  async #stack(name, rows, positions, onShare) {
    const { dim } = this.config;
    const reach = this.about.reach[name];
    const result = new Float32Array(rows.length);
    for (const [start, end] of blocks(positions.length, this.piece)) {
      const [from, to] = [Math.max(0, start - reach), Math.min(positions.length, end + reach)];
      const y = await this.run(name, {
        x: rows.subarray(from * dim, to * dim),
        positions: BigInt64Array.from(positions.slice(from, to), BigInt),
      });
      result.set(y.subarray((start - from) * dim, (end - from) * dim), start * dim);
      onShare(end / positions.length);
    }
    return result;
  }

  /** Tokens in their places, in blocks. One that begins within a span is led by the span's token. */
  async #upsample(h, mask) {
    const { dim } = this.config;
    const result = new Float32Array(mask.length * dim);
    let before = 0; // tokens
    for (const [start, end] of blocks(mask.length, this.block)) {
      const own = mask.subarray(start, end);
      const tokens = own.reduce((total, kept) => total + kept, 0);
      const lead = own[0] ? 0 : 1;
      const rows = h.subarray((before - lead) * dim, (before + tokens) * dim);
      const found = await this.run("upsample", { h: rows, mask: lead ? Uint8Array.of(1, ...own) : own });
      result.set(found.subarray(lead * dim), start * dim);
      before += tokens;
    }
    return result;
  }

  async #synthesize(y, steps, onShare) {
    const { hop_length: hop, dim } = this.config;
    const size = 4 * hop;
    const sum = new Float32Array(steps * hop + size - hop);
    let pulses = { hertz: null, phase: 0 };
    for (const [start, end] of blocks(steps, this.block)) {
      const inputs = { y: y.subarray(start * dim, end * dim) };
      if (this.about.graphs.pitch) {
        inputs.positions = BigInt64Array.from(counted(end - start, start), BigInt);
        inputs.hertz = await this.run("pitch", { y: inputs.y });
        inputs.phase = this.#phases(inputs.hertz, pulses);
        pulses = { hertz: inputs.hertz.at(-1), phase: inputs.phase.at(-1) };
      }
      const frames = await this.run("head", inputs);
      for (let t = start; t < end; t++) {
        for (let i = 0; i < size; i++) sum[t * hop + i] += frames[(t - start) * size + i];
      }
      onShare(end / steps);
    }
    return normalised(sum, steps, hop);
  }

  /** Phases of the pulses, in 64 bits; they go on from the block before. */
  #phases(hertz, { hertz: lastHertz, phase: lastPhase }) {
    const turn = (Math.PI * this.config.hop_length) / this.config.sample_rate;
    let [before, phase] = [lastHertz, lastPhase];
    return hertz.map((value) => {
      phase = before === null ? 0 : (phase + turn * (value + before)) % (2 * Math.PI);
      before = value;
      return phase;
    });
  }
}

/** Overlap-added frames of 4 hops over the sum of their squared windows, without the padding at the ends. */
function normalised(sum, steps, hop) {
  const size = 4 * hop;
  const squares = Float32Array.from({ length: size }, (_, n) => (0.5 - 0.5 * Math.cos((2 * Math.PI * n) / size)) ** 2);
  const padding = (size - hop) / 2;
  const samples = new Float32Array(steps * hop);
  for (let i = 0; i < samples.length; i++) {
    const at = i + padding;
    const [first, last] = [Math.max(0, Math.floor(at / hop) - 3), Math.min(steps - 1, Math.floor(at / hop))];
    let envelope = 0;
    for (let t = first; t <= last; t++) envelope += squares[at - t * hop];
    samples[i] = sum[at] / envelope;
  }
  return samples;
}

/** start, start + 1 ... */
const counted = (count, start = 0) => Array.from({ length: count }, (_, i) => start + i);

/** [start, end] of every `size` of `count`. */
function* blocks(count, size) {
  for (let start = 0; start < count; start += size) yield [start, Math.min(count, start + size)];
}
