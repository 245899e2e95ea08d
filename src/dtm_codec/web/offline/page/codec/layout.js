// How a stream is laid out in time and in bits, and what that costs (Eq. 5).

/** layout: { sampleRate, hopLength, tokenBits, stride }, stride null at a variable rate. */
export const stepsOf = (layout, numSamples) => Math.ceil(numSamples / layout.hopLength);

/** Whole bits: `tokenBits` for each token, and at a variable rate one for each step. */
export function bitsOf(layout, tokens, steps) {
  const content = tokens * layout.tokenBits;
  const position = layout.stride === null ? steps : 0;
  return { content, position, total: content + position };
}

/** A kept step every `stride` steps. */
export const fixedMask = (stride, steps) =>
  Uint8Array.from({ length: steps }, (_, step) => (step % stride === 0 ? 1 : 0));

/** Steps that are kept, in order. */
export function positionsOf(mask) {
  const positions = [];
  mask.forEach((kept, step) => kept && positions.push(step));
  return positions;
}
