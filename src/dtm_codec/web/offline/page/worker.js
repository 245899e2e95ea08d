// The model in a worker, so that the page answers while it computes. Everything comes from the page's own folder.
//
// Messages: { id, call, argument } -> { id, value } or { id, error }, and { id, share } on the way.

import { readUpTo, write } from "./codec/container.js";
import { ModelError } from "./codec/errors.js";
import { Model } from "./codec/model.js";
import { readArrays } from "./codec/safetensors.js";
import { TokenModel } from "./codec/token_coder.js";

const FOLDER = new URL("../", import.meta.url);
const KINDS = { float32: Float32Array, float64: Float64Array, int64: BigInt64Array, bool: Uint8Array };
const MOST_THREADS = 4;

let model = null;
let maxSeconds = 0;
let analysed = { clip: null };

const calls = {
  /** page: page.json. Fetches and prepares all; answers how it computes. */
  async open(page, onShare) {
    const files = new Fetcher(page.files, onShare);
    const [about, config] = await Promise.all(
      ["model/graphs.json", "model/config.json"].map((path) => files.json(path)),
    );
    const arrays = about.token_model && readArrays(await files.bytes(`model/${about.token_model}`));
    const tokenModel = arrays && new TokenModel(arrays.class_of, arrays.transitions, arrays.members);
    const ort = await import(files.url("runtime/ort.wasm.min.mjs"));
    const { wasm } = ort.env;
    wasm.wasmPaths = { mjs: files.url("runtime/ort-wasm-simd-threaded.mjs") };
    wasm.wasmBinary = await files.bytes("runtime/ort-wasm-simd-threaded.wasm");
    wasm.numThreads =
      page.threads ?? (self.crossOriginIsolated ? Math.min(MOST_THREADS, navigator.hardwareConcurrency) : 1);
    const graphs = Object.entries(about.graphs).map(([name, { file }]) => [name, files.bytes(`model/${file}`)]);
    const sessions = {};
    for (const [name, bytes] of graphs) {
      sessions[name] = await ort.InferenceSession.create(await bytes, { executionProviders: ["wasm"] });
    }
    maxSeconds = page.max_seconds;
    model = new Model(about, config, tokenModel, page, (name, inputs) =>
      run(ort, about.graphs[name], sessions[name], inputs),
    );
    return { threads: wasm.numThreads };
  },

  /** { clip, samples, bitrate } -> an encoding; a clip is analysed once, and its samples are needed only then. */
  async encode({ clip, samples, bitrate }, onShare) {
    const started = performance.now();
    if (analysed.clip !== clip) analysed = { clip, ...(await model.analyse(samples, (share) => onShare(0.4 * share))) };
    const utterance = await model.encode(analysed, bitrate, (share) => onShare(0.4 + 0.2 * share));
    const dtm = write(utterance, "compact", model.tokenModel);
    const encoded = performance.now();
    const decoded = await model.decode(utterance, (share) => onShare(0.6 + 0.4 * share));
    return answer(utterance, dtm, decoded, { encode: encoded - started, decode: performance.now() - encoded });
  },

  /** The bytes of a .dtm file -> an encoding */
  async decode(bytes, onShare) {
    const started = performance.now();
    const utterance = readUpTo(maxSeconds, bytes, model.tokenModel);
    const decoded = await model.decode(utterance, onShare);
    return answer(utterance, bytes, decoded, { encode: 0, decode: performance.now() - started });
  },
};

const answer = ({ codes, mask, numSamples, layout }, dtm, samples, ms) => ({
  codes,
  mask,
  numSamples,
  layout,
  dtm,
  samples,
  ms,
});

/** Shapes come from the graph's own description: what is not a number there is the number of rows. */
async function run(ort, { inputs, outputs }, session, arrays) {
  const feeds = {};
  for (const { name, dtype, shape } of inputs) {
    const array = arrays[name];
    if (!(array instanceof KINDS[dtype])) throw new ModelError(`input ${name} of a graph is no ${dtype}`);
    const row = shape.reduce((size, axis) => size * (typeof axis === "number" ? axis : 1), 1);
    feeds[name] = new ort.Tensor(
      dtype,
      array,
      shape.map((axis) => (typeof axis === "number" ? axis : array.length / row)),
    );
  }
  const results = await session.run(feeds);
  return results[outputs[0].name].data;
}

/** Files of the folder, and how much of them has come. A name with its hash never means other content. */
class Fetcher {
  #files;
  #onShare;
  #got = 0;

  constructor(files, onShare) {
    this.#files = files;
    this.#onShare = onShare;
  }

  url(path) {
    return new URL(`${path}?v=${this.#files[path].hash}`, FOLDER).href;
  }

  async bytes(path) {
    const response = await fetch(this.url(path)).catch(() => null);
    if (!response?.ok) throw new Error(`${path} cannot be loaded. Is the page's folder complete?`);
    const parts = [];
    for (const reader = response.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) break;
      parts.push(value);
      this.#got += value.length;
      this.#onShare(Math.min(1, this.#got / this.#total));
    }
    return new Uint8Array(await new Blob(parts).arrayBuffer());
  }

  async json(path) {
    return JSON.parse(new TextDecoder().decode(await this.bytes(path)));
  }

  get #total() {
    const fetched = Object.entries(this.#files).filter(
      ([path]) => /^(model|runtime)\//.test(path) && !path.endsWith(".mjs"),
    );
    return fetched.reduce((total, [, { bytes }]) => total + bytes, 0);
  }
}

let last = Promise.resolve(); // one call at a time

self.addEventListener("message", ({ data: { id, call, argument } }) => {
  last = last.then(async () => {
    try {
      const value = await calls[call](argument, (share) => self.postMessage({ id, share }));
      self.postMessage({ id, value });
    } catch (error) {
      self.postMessage({ id, error: error.message || String(error) });
    }
  });
});
