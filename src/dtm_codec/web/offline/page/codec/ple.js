// Path Length Equalization (Algorithm 1): keep a step each time the path through feature space has grown by tau.

import { RateError } from "./errors.js";

/** Step lengths (N,), tau, { sMax, firstCrossing } -> keep mask (N,) of 0 and 1; selectors/ple.py explains it. */
export function keep(statistics, tau, { sMax = null, firstCrossing = false } = {}) {
  if (!(tau > 0 && tau < Infinity)) throw new RateError(`tau = ${tau}; allowed: > 0 (path length per kept frame)`);
  const mask = new Uint8Array(statistics.length);
  let path = 0;
  let least = Infinity; // of multiples passed minus time
  let before = null;
  let start = 0; // of the span that holds this step
  for (let time = 0; time < statistics.length; time++) {
    path += statistics[time];
    let placed = Math.floor(path / tau);
    if ((placed + 1) * tau <= path) placed += 1; // the division may round across the multiple
    if (placed * tau > path) placed -= 1; // that Algorithm 1 compares with
    if (!firstCrossing) {
      least = Math.min(least, placed - time);
      placed = least + time;
    }
    if (time === 0 || placed > before) start = time;
    before = placed;
    mask[time] = (sMax === null ? time === start : (time - start) % sMax === 0) ? 1 : 0;
  }
  return mask;
}

/** 1 - cosine similarity of every row and the one before it, 0 for the first. (N x D,) -> (N,), in float32 */
export function cosineSteps(features, dim) {
  const steps = new Float32Array(features.length / dim);
  let before = null;
  for (let time = 0; time < steps.length; time++) {
    const row = unit(features.subarray(time * dim, (time + 1) * dim));
    if (before) {
      let squares = 0;
      for (let i = 0; i < dim; i++) squares += Math.fround(row[i] - before[i]) ** 2;
      const distance = Math.fround(Math.sqrt(squares));
      steps[time] = Math.fround(distance * distance) / 2;
    }
    before = row;
  }
  return steps;
}

/** A row scaled to length one; a zero row stays zero. */
function unit(row) {
  let squares = 0;
  for (const value of row) squares += value * value;
  const length = Math.max(Math.fround(Math.sqrt(squares)), Math.fround(1e-12));
  return row.map((value) => value / length);
}
