// tau for a target rate on one utterance, as rate/calibration.py finds it.

import { RateError } from "./errors.js";
import { bitsOf, stepsOf } from "./layout.js";

const [TAU_MIN, TAU_MAX] = [1e-6, 1e6];

/** Bisect log tau until `keepAt(tau)` keeps `target` steps, or as near as can be found. -> { tau, tokens, mask } */
export function calibrate(keepAt, target) {
  const at = (tau) => {
    const mask = keepAt(tau);
    return { tau, mask, tokens: mask.reduce((total, kept) => total + kept, 0) };
  };
  const nearer = (first, second) =>
    Math.abs(second.tokens - target) < Math.abs(first.tokens - target) ? second : first;
  let [low, high] = [at(TAU_MIN), at(TAU_MAX)]; // low tau, many tokens
  let best = nearer(high, low);
  while (best.tokens !== target && high.tau / low.tau > 1 + 1e-12) {
    const middle = at(Math.sqrt(low.tau * high.tau));
    best = nearer(best, middle);
    if (middle.tokens > target) low = middle;
    else high = middle;
  }
  return best;
}

/** Tokens that spend a total of `bitrate` bits a second, position bits included, on so many samples. */
export function tokensForBitrate(bitrate, numSamples, layout, sMax = null) {
  const steps = stepsOf(layout, numSamples);
  const seconds = numSamples / layout.sampleRate;
  const fewest = Math.ceil(steps / (layout.stride ?? sMax ?? steps));
  const most = layout.stride === null ? steps : fewest;
  const slack = 1 + 1 / layout.tokenBits; // the last step is paid in full, however little it holds
  const tokens = (bitrate * seconds - bitsOf(layout, 0, steps).total) / layout.tokenBits;
  if (!(fewest - slack <= tokens && tokens <= most + slack)) {
    const [low, high] = [fewest, most].map((count) => (bitsOf(layout, count, steps).total / seconds).toFixed(0));
    throw new RateError(`bitrate = ${bitrate} bps; allowed: ${low} ... ${high} bps on this audio`);
  }
  return Math.min(Math.max(roundToEven(tokens), fewest), most);
}

/** Halves go to the even number, as Python rounds. */
function roundToEven(value) {
  const floor = Math.floor(value);
  const rest = value - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2 !== 0) ? floor + 1 : floor;
}
