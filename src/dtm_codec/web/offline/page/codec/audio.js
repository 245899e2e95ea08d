// Any sound the browser can read, as mono samples at the model's rate.

import { AudioError } from "./errors.js";

const ZEROS = 32; // of the sinc on each side of its centre
const MOST_MEGABYTES = 128; // of a file: decoded, it takes many times as much
const MAX_LEVEL = 100; // as in speech/audio.py: no recording is 40 dB above full scale
const BETA = 12; // of the Kaiser window: 118 dB

/** Band-limited to the lower of both rates, (T,) -> (round(T to / from),), at least one. A windowed sinc, the same in
 *  every browser. */
export function resample(samples, from, to) {
  if (from === to) return samples;
  const divisor = gcd(from, to);
  const [up, down] = [to / divisor, from / divisor];
  const cutoff = (0.95 * Math.min(from, to)) / from; // of half the old rate: the filter needs room to fall
  const reach = Math.ceil(ZEROS / cutoff);
  const phases = Array.from({ length: up }, (_, phase) => filter(((phase * down) % up) / up, cutoff, reach));
  const resampled = new Float32Array(Math.max(1, Math.round((samples.length * up) / down)));
  for (let i = 0; i < resampled.length; i++) {
    const centre = Math.floor((i * down) / up);
    const weights = phases[i % up];
    const first = centre - reach + 1;
    let sum = 0;
    const [begin, end] = [Math.max(0, -first), Math.min(2 * reach, samples.length - first)];
    for (let k = begin; k < end; k++) sum += weights[k] * samples[first + k];
    resampled[i] = sum;
  }
  return resampled;
}

const gcd = (a, b) => (b ? gcd(b, a % b) : a);

/** Weights of the samples from `reach` - 1 before to `reach` after a place that lies `offset` after a sample. */
function filter(offset, cutoff, reach) {
  const weights = Float64Array.from({ length: 2 * reach }, (_, k) => {
    const x = k - reach + 1 - offset;
    const angle = Math.PI * cutoff * x;
    return (angle === 0 ? 1 : Math.sin(angle) / angle) * bessel(BETA * Math.sqrt(Math.max(0, 1 - (x / reach) ** 2)));
  });
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return weights.map((weight) => weight / sum);
}

/** The modified Bessel function of order 0, by its series. */
function bessel(x) {
  let [sum, term] = [1, 1];
  for (let k = 1; term > 1e-12 * sum; k++) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

/** The mean of all channels. */
export function toMono(buffer) {
  const mono = buffer.getChannelData(0).slice();
  for (let channel = 1; channel < buffer.numberOfChannels; channel++) {
    buffer.getChannelData(channel).forEach((value, i) => (mono[i] += value));
  }
  return mono.map((value) => value / buffer.numberOfChannels);
}

/** Refuse samples that no recording has: one of them would drown all others. */
export function checkLevel(samples) {
  const bad = samples.findIndex((value) => !(Math.abs(value) <= MAX_LEVEL)); // NaN is in no range
  if (bad >= 0) {
    const allowed = `-${MAX_LEVEL} ... ${MAX_LEVEL}, where full scale is 1`;
    throw new AudioError(`The file holds ${samples[bad].toPrecision(3)} at sample ${bad}; allowed: ${allowed}.`);
  }
  return samples;
}

/** A file that the browser decodes -> mono samples at `sampleRate`. */
export async function readAudio(bytes, sampleRate) {
  const megabytes = bytes.byteLength / 1e6;
  if (megabytes > MOST_MEGABYTES) {
    throw new AudioError(`The file has ${megabytes.toFixed(0)} MB; allowed: up to ${MOST_MEGABYTES} MB.`);
  }
  const rate = storedRate(new Uint8Array(bytes)) ?? 48000;
  let buffer;
  try {
    buffer = await new OfflineAudioContext(1, 1, rate).decodeAudioData(bytes);
  } catch {
    throw new AudioError("This browser cannot read the file as audio.");
  }
  if (!buffer.length) throw new AudioError("The file has 0 samples; allowed: 1 or more.");
  return resample(checkLevel(toMono(buffer)), rate, sampleRate);
}

/** The sample rate of a WAV or FLAC file, so that the browser need not resample it; null for what it alone knows. */
function storedRate(bytes) {
  const name = (at, length) => String.fromCharCode(...bytes.subarray(at, at + length));
  let rate = null;
  if (name(0, 4) === "RIFF" && name(8, 8) === "WAVEfmt ")
    rate = new DataView(bytes.buffer, bytes.byteOffset).getUint32(24, true);
  if (name(0, 4) === "fLaC") rate = (bytes[18] << 12) | (bytes[19] << 4) | (bytes[20] >> 4);
  return rate >= 8000 && rate <= 96000 ? rate : null; // what every browser's contexts take
}
