// What stands before the payload of a .dtm file (docs/bitstream.md, section 2).

import { BitstreamError } from "./errors.js";

const MAGIC = [0x44, 0x54, 0x4d]; // "DTM"
const VERSION = 2;
const RELEASES = { 1: "0.1" };
const SAMPLE_RATES = [8000, 16000, 22050, 24000, 32000, 44100, 48000];
const MAX_STEPS = 1 << 24;
const LIMITS = { sampleRate: (1 << 24) - 1, hopLength: (1 << 16) - 1, tokenBits: 24, stride: 255 };
const NAMES = { sampleRate: "sample_rate", hopLength: "hop_length", tokenBits: "token_bits", stride: "stride" };
const LETTERS = "\0abcdefghijklmnopqrstuvwxyz0123456789.-";
const BASE = 40;
const LETTERS_A_NAME = 9;
const MODEL_ID = /^([a-z0-9.-]{1,9}):([0-9a-f]{8})$/;
const [MASK_CODED, TOKENS_CODED, FIXED_RATE] = [1, 2, 4];

/** Refuse what is not a .dtm file, or is of another version. */
export function checkSignature(bytes) {
  if (MAGIC.some((byte, i) => bytes[i] !== byte)) {
    const start = [...bytes.subarray(0, 3)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    throw new BitstreamError(`not a .dtm file: it starts with the bytes '${start}', not '44 54 4d'`);
  }
  const version = bytes.length > 3 ? bytes[3] >> 4 : VERSION;
  if (version !== VERSION) {
    const reader = version in RELEASES ? `dtm-codec ${RELEASES[version]} reads it` : "a newer release may read it";
    throw new BitstreamError(`a .dtm file of version ${version}: ${reader}; this page reads version ${VERSION}`);
  }
}

/** header: { layout, numSamples, modelId, maskBytes (null: not range coded), tokensCoded }. Returns it. */
export function checkHeader(header) {
  const { layout, numSamples, modelId } = header;
  for (const [name, most] of Object.entries(LIMITS)) {
    const value = layout[name];
    if (value !== null && !(value >= 1 && value <= most)) {
      throw new BitstreamError(`${NAMES[name]} = ${value}; allowed in a file: 1 ... ${most}`);
    }
  }
  if (!MODEL_ID.test(modelId)) {
    throw new BitstreamError(
      `model id '${modelId}'; allowed: 1 to ${LETTERS_A_NAME} of a-z, 0-9, '.', '-', then ':' and 8 hexadecimal digits`,
    );
  }
  const most = MAX_STEPS * layout.hopLength;
  if (!(numSamples >= 1 && numSamples <= most)) {
    throw new BitstreamError(
      `num_samples = ${numSamples}; allowed in a file with hops of ${layout.hopLength}: 1 ... ${most}`,
    );
  }
  return header;
}

export function writeHeader(header) {
  const { layout, numSamples, modelId, maskBytes, tokensCoded } = checkHeader(header);
  const fixedRate = layout.stride !== null;
  const flags = (maskBytes === null ? 0 : MASK_CODED) | (tokensCoded ? TOKENS_CODED : 0) | (fixedRate ? FIXED_RATE : 0);
  const rateCode = SAMPLE_RATES.indexOf(layout.sampleRate) + 1;
  const hopCode = layout.hopLength % 4 === 0 && layout.hopLength <= 1020 ? layout.hopLength / 4 : 0;
  return Uint8Array.from([
    ...MAGIC,
    (VERSION << 4) | flags,
    ...packModelId(modelId),
    (rateCode << 5) | layout.tokenBits,
    hopCode,
    ...(rateCode ? [] : varint(layout.sampleRate)),
    ...(hopCode ? [] : varint(layout.hopLength)),
    ...varint(numSamples),
    ...(fixedRate ? [layout.stride] : []),
    ...(maskBytes === null ? [] : varint(maskBytes)),
  ]);
}

/** -> { header, length }: what the bytes say, and where the payload begins. */
export function readHeader(bytes) {
  let at = MAGIC.length;
  const byte = () => {
    if (at >= bytes.length) throw new BitstreamError(`cut off in the header, after ${bytes.length} bytes`);
    return bytes[at++];
  };
  const number = () => {
    let value = 0;
    for (let shift = 0; shift < 42; shift += 7) {
      const group = byte();
      value += (group & 127) * 2 ** shift;
      if (group < 128) {
        if (group === 0 && shift) break;
        return value;
      }
    }
    throw new BitstreamError(`a number that is too long, at byte ${at}`);
  };
  const flags = byte() & 15;
  const fixedRate = Boolean(flags & FIXED_RATE);
  if (flags > 7 || (flags & MASK_CODED && fixedRate))
    throw new BitstreamError(`unknown combination of flags 0x${flags.toString(16)}`);
  const modelId = unpackModelId(Array.from({ length: 10 }, byte));
  const rateAndWidth = byte();
  const hopCode = byte();
  const sampleRate = rateAndWidth >> 5 ? SAMPLE_RATES[(rateAndWidth >> 5) - 1] : number();
  const hopLength = hopCode ? 4 * hopCode : number();
  const numSamples = number();
  const layout = { sampleRate, hopLength, tokenBits: rateAndWidth & 31, stride: fixedRate ? byte() : null };
  const maskBytes = flags & MASK_CODED ? number() : null;
  const header = checkHeader({ layout, numSamples, modelId, maskBytes, tokensCoded: Boolean(flags & TOKENS_CODED) });
  return { header, length: at };
}

/** Seven bits a byte, the lowest first; the high bit says that more follow. */
function varint(value) {
  const groups = [];
  do {
    groups.push(value % 128);
    value = Math.floor(value / 128);
  } while (value);
  return groups.map((group, i) => (i < groups.length - 1 ? group + 128 : group));
}

/** Nine letters to the base 40 in 6 bytes, the first the most significant, then the fingerprint. */
function packModelId(modelId) {
  const [, name, fingerprint] = MODEL_ID.exec(modelId);
  let number = 0;
  for (const letter of name.padEnd(LETTERS_A_NAME, LETTERS[0])) number = number * BASE + LETTERS.indexOf(letter);
  const bytes = Array.from({ length: 6 }, (_, i) => Math.floor(number / 256 ** (5 - i)) % 256);
  return [...bytes, ...[0, 2, 4, 6].map((i) => parseInt(fingerprint.slice(i, i + 2), 16))];
}

function unpackModelId(bytes) {
  let number = bytes.slice(0, 6).reduce((value, byte) => value * 256 + byte, 0);
  let name = "";
  for (let i = 0; i < LETTERS_A_NAME; i++) {
    name = (LETTERS[number % BASE] ?? "?") + name;
    number = Math.floor(number / BASE);
  }
  const fingerprint = bytes
    .slice(6)
    .map((byte) => byte.toString(16).padStart(2, "0"))
    .join("");
  return `${number ? "?" : name.replace(/\0+$/, "")}:${fingerprint}`;
}
