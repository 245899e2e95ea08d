// The demo's engine without a server: a worker in this browser computes, and nothing is sent anywhere.

import { readAudio } from "./codec/audio.js";
import { writtenBits } from "./codec/container.js";
import { bitsOf, positionsOf } from "./codec/layout.js";
import { breaksOff, encodeWav } from "./wav.js";
import { picture, spectrogram } from "./spectrogram.js";

const FOLDER = new URL("../", import.meta.url);
const SMOOTHING = 0.08; // s: of the local token rate, as in plotting.py

export function createEngine(player, onProgress) {
  const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  const waiting = new Map();
  let page = null;
  let calls = 0;
  let clips = 0;
  let known = 0; // the clip that the worker has analysed

  /** A call of worker.js, with its progress under `text`. */
  function ask(call, argument, text) {
    return new Promise((resolve, reject) => {
      waiting.set(++calls, { resolve, reject, text });
      worker.postMessage({ id: calls, call, argument });
    }).finally(() => onProgress(""));
  }

  worker.addEventListener("message", ({ data: { id, share, value, error } }) => {
    const { resolve, reject, text } = waiting.get(id);
    if (share !== undefined) return onProgress(text, share);
    waiting.delete(id);
    if (error === undefined) resolve(value);
    else reject(new Error(error));
  });
  worker.addEventListener("error", (event) => {
    for (const { reject } of waiting.values())
      reject(new Error(event.message || "The model could not be started in this browser."));
    waiting.clear();
  });

  function toBuffer(samples) {
    const buffer = player.context.createBuffer(1, samples.length, page.sample_rate);
    buffer.copyToChannel(samples, 0);
    return buffer;
  }

  async function toClip(bytes) {
    const lost = breaksOff(bytes); // now: decoding takes the bytes away
    const read = await readAudio(bytes, page.sample_rate);
    const most = page.max_seconds * page.sample_rate;
    const samples = read.subarray(0, most);
    const shown = spectrogram(samples, page.sample_rate);
    return {
      id: ++clips,
      samples,
      seconds: samples.length / page.sample_rate,
      buffer: toBuffer(samples),
      image: picture(shown, shown.peak),
      peak: shown.peak,
      note: lost ?? (read.length > most ? `The first ${page.max_seconds} s of it.` : undefined),
    };
  }

  function toEncoding({ mask, codes, numSamples, layout, dtm, samples, ms }, peak) {
    const seconds = numSamples / layout.sampleRate;
    const frameRate = layout.sampleRate / layout.hopLength;
    const shown = spectrogram(samples, layout.sampleRate);
    return {
      nominal: bitsOf(layout, codes.length, mask.length),
      written: writtenBits(dtm),
      duration_s: seconds,
      tokens: codes.length,
      steps: mask.length,
      token_rate: codes.length / seconds,
      keep_ratio: codes.length / mask.length,
      positions: positionsOf(mask),
      local_rate: localRate(mask, frameRate),
      seconds: (ms.encode + ms.decode) / 1000,
      buffer: toBuffer(samples),
      image: picture(shown, peak ?? shown.peak),
      dtm,
      get wav() {
        return encodeWav(samples, layout.sampleRate);
      },
    };
  }

  return {
    hint: "Drop a recording or a .dtm file here, record, or use the sample.",
    another: "Drop another file here, or record.",
    accept: "audio/*,video/*,.dtm",
    promise: "Nothing leaves this machine",
    privacy: "The model runs in your browser: nothing is uploaded, and the page works without a network.",

    async describe() {
      page = await (await fetch(new URL("page.json", FOLDER))).json();
      await ask("open", page, "Loading the model …");
      const storing = navigator.serviceWorker?.register(new URL("service-worker.js", FOLDER));
      storing?.catch(() => {}); // without it, all works but opening the page without a network
      return page;
    },

    async sample() {
      return toClip(await (await fetch(new URL("sample.flac", FOLDER))).arrayBuffer());
    },

    async load(bytes) {
      const start = new Uint8Array(bytes, 0, Math.min(3, bytes.byteLength));
      if (String.fromCharCode(...start) !== "DTM") return toClip(bytes);
      const encoding = toEncoding(await ask("decode", new Uint8Array(bytes), "Decoding …"));
      return { seconds: encoding.buffer.duration, buffer: encoding.buffer, image: null, encoding };
    },

    async encode({ id, samples, peak }, bitrate) {
      const argument = { clip: id, bitrate, samples: known === id ? null : samples };
      const answer = await ask("encode", argument, "Encoding and decoding …");
      known = id;
      return toEncoding(answer, peak);
    },
  };
}

/** Tokens a second around each step, over a Gaussian window. */
function localRate(mask, frameRate) {
  const reach = Math.round(4 * SMOOTHING * frameRate);
  const weights = Array.from({ length: 2 * reach + 1 }, (_, i) =>
    Math.exp(-0.5 * ((i - reach) / (SMOOTHING * frameRate)) ** 2),
  );
  return Array.from(mask, (_, step) => {
    let [kept, all] = [0, 0];
    for (let i = Math.max(0, reach - step); i < Math.min(weights.length, mask.length - step + reach); i++) {
      kept += weights[i] * mask[step + i - reach];
      all += weights[i];
    }
    return (frameRate * kept) / all;
  });
}
