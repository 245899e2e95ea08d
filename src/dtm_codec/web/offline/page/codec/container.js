// The .dtm file of one utterance, as bitstream/container.py writes and reads it (docs/bitstream.md).
//
// An utterance is { codes (K,), mask (N,) of 0 and 1, numSamples, modelId, layout }. For each utterance and choice
// there is one string of bytes, and `read` takes no other.

import { BitReader, BitWriter, packedBytes } from "./bits.js";
import { crc32 } from "./checksums.js";
import { BitstreamError } from "./errors.js";
import { checkHeader, checkSignature, readHeader, writeHeader } from "./header.js";
import { fixedMask, stepsOf } from "./layout.js";
import { decodeMask, encodeMask } from "./mask_coder.js";
import { MAX_FINGERPRINT, checkTokens, decodeTokens, encodeTokens } from "./token_coder.js";

const CRC_BYTES = 4;

/** The smallest of the forms that `mode` ("compact" or "raw") allows, and of equally small ones the first. */
export function write(utterance, mode = "compact", tokenModel = null) {
  if (mode !== "compact" && mode !== "raw") throw new BitstreamError(`mode = '${mode}'; allowed: 'compact', 'raw'`);
  const { layout, numSamples, modelId, mask, codes } = utterance;
  checkHeader({ layout, numSamples, modelId, maskBytes: null, tokensCoded: false });
  const compact = mode === "compact";
  const masks = compact && layout.stride === null ? [null, encodeMask(mask)] : [null];
  if (compact && tokenModel) checkWidth(tokenModel, layout);
  const tokens = compact && tokenModel ? [null, encodeTokens(codes, tokenModel)] : [null];
  const files = masks.flatMap((codedMask) =>
    tokens.map((codedTokens) => assemble(utterance, tokenModel, codedMask, codedTokens)),
  );
  return files.reduce((best, file) => (file.length < best.length ? file : best));
}

/** A file with each section range coded as given, or in fixed width for null. */
function assemble({ layout, numSamples, modelId, mask, codes }, tokenModel, codedMask, codedTokens) {
  const header = writeHeader({
    layout,
    numSamples,
    modelId,
    maskBytes: codedMask?.length ?? null,
    tokensCoded: codedTokens !== null,
  });
  const withMask = layout.stride === null && codedMask === null;
  const withTokens = codedTokens === null;
  const fixedWidth = new BitWriter((withMask ? mask.length : 0) + (withTokens ? codes.length * layout.tokenBits : 0));
  if (withMask) for (const kept of mask) fixedWidth.write(kept, 1);
  if (withTokens) for (const code of codes) fixedWidth.write(code, layout.tokenBits);
  // what is in fixed width comes after a coded mask and before coded tokens
  const parts = [header, codedMask ?? [], fixedWidth.bytes, codedTokens ?? []];
  const file = new Uint8Array(parts.reduce((total, part) => total + part.length, CRC_BYTES));
  let at = 0;
  for (const part of parts) {
    file.set(part, at);
    at += part.length;
  }
  const checksum = crc32(file.subarray(0, at)) ^ (withTokens ? 0 : tokenModel.fingerprint);
  new DataView(file.buffer).setUint32(at, checksum >>> 0);
  return file;
}

/** What a file holds; whatever `write` has not written throws a BitstreamError. */
export function read(bytes, tokenModel = null) {
  const { header, fingerprint, mask, tokens, section, bitOffset } = open(bytes);
  const { layout, numSamples, modelId } = header;
  let codes;
  if (header.tokensCoded) {
    if (!tokenModel)
      throw new BitstreamError(`the tokens are coded with the statistics of model '${modelId}': give them`);
    if (tokenModel.fingerprint !== fingerprint) {
      throw new BitstreamError(
        `the tokens are coded with statistics ${hex(fingerprint)} of model '${modelId}'; ` +
          `given: ${hex(tokenModel.fingerprint)}, those of another model or export`,
      );
    }
    checkWidth(tokenModel, layout);
    codes = decodeTokens(section, tokenModel, tokens);
  } else {
    const reader = new BitReader(section, bitOffset);
    codes = Int32Array.from({ length: tokens }, () => reader.read(layout.tokenBits));
  }
  const utterance = { codes, mask, numSamples, modelId, layout };
  const mode = header.tokensCoded || header.maskBytes !== null ? "compact" : "raw";
  const written = write(utterance, mode, header.tokensCoded ? tokenModel : null);
  if (written.length !== bytes.length || written.some((byte, i) => byte !== bytes[i])) {
    throw new BitstreamError("not the bytes that its own content is written as: a file of another program, or forged");
  }
  return utterance;
}

/** What a file takes beside its header, in bits: { content, position, total }. */
export function writtenBits(bytes) {
  const { header, tokens, section } = open(bytes);
  const { layout, maskBytes, tokensCoded } = header;
  const content = tokensCoded ? 8 * section.length : tokens * layout.tokenBits;
  const fixedWidth = layout.stride === null ? stepsOf(layout, header.numSamples) : 0;
  const position = maskBytes === null ? fixedWidth : 8 * maskBytes;
  return { content, position, total: content + position };
}

const hex = (fingerprint) => fingerprint.toString(16).padStart(4, "0");

function checkWidth(tokenModel, layout) {
  if (tokenModel.tokenBits !== layout.tokenBits) {
    throw new BitstreamError(
      `token statistics for codes of ${tokenModel.tokenBits} bits; the stream's have ${layout.tokenBits}`,
    );
  }
}

/** `read` for files of strangers: one that claims more than `maxSeconds` is refused before its mask is decoded. Of
 *  files with more than 200 steps a second, the steps are counted: their seconds say little. */
export function readUpTo(maxSeconds, bytes, tokenModel = null) {
  const { layout, numSamples } = openHeader(bytes).header;
  const seconds = Math.max(numSamples / layout.sampleRate, stepsOf(layout, numSamples) / 200);
  if (seconds > maxSeconds) {
    throw new BitstreamError(`a file of ${Math.ceil(seconds)} s; allowed on this page: up to ${maxSeconds} s`);
  }
  return read(bytes, tokenModel);
}

/** Header, fingerprint of the token statistics, and payload. */
function openHeader(bytes) {
  checkSignature(bytes);
  const content = bytes.subarray(0, Math.max(0, bytes.length - CRC_BYTES));
  const stored = bytes.subarray(content.length).reduce((value, byte) => value * 256 + byte, 0);
  const fingerprint = (crc32(content) ^ stored) >>> 0;
  const damaged = () => new BitstreamError("damaged or cut off: the checksum does not match");
  if (fingerprint > MAX_FINGERPRINT) throw damaged();
  const { header, length } = readHeader(content);
  if (fingerprint && !header.tokensCoded) throw damaged();
  return { header, fingerprint, payload: content.subarray(length) };
}

/** Check and take apart. Nothing is reserved that is out of proportion to the length of the file. */
function open(bytes) {
  const { header, fingerprint, payload } = openHeader(bytes);
  const { layout } = header;
  const steps = stepsOf(layout, header.numSamples);
  const opened = { header, fingerprint, section: payload, bitOffset: 0 };
  const checked = (tokens) => {
    const { section, bitOffset } = opened;
    if (header.tokensCoded) checkTokens(tokens, section.length);
    else if (section.length !== packedBytes(bitOffset + tokens * layout.tokenBits)) {
      throw new BitstreamError(`${tokens} tokens of ${layout.tokenBits} bits in ${section.length} bytes`);
    }
    return tokens;
  };
  if (layout.stride !== null) {
    opened.tokens = checked(Math.ceil(steps / layout.stride));
    opened.mask = fixedMask(layout.stride, steps);
    return opened;
  }
  if (header.maskBytes !== null) {
    if (header.maskBytes > opened.section.length) {
      throw new BitstreamError(`a mask of ${header.maskBytes} bytes in a payload of ${opened.section.length}`);
    }
    opened.mask = decodeMask(opened.section.subarray(0, header.maskBytes), steps);
    opened.section = opened.section.subarray(header.maskBytes);
  } else {
    openMask(opened, steps);
  }
  opened.tokens = checked(opened.mask.reduce((total, kept) => total + kept, 0));
  return opened;
}

/** A mask in fixed width; tokens in fixed width follow it without a gap. */
function openMask(opened, steps) {
  const { section, header } = opened;
  if (packedBytes(steps) > section.length) {
    throw new BitstreamError(`a mask of ${steps} steps in a payload of ${section.length} bytes`);
  }
  const reader = new BitReader(section, 0);
  opened.mask = Uint8Array.from({ length: steps }, () => reader.read(1));
  if (!opened.mask[0]) throw new BitstreamError("the first step is masked; it must be kept");
  if (header.tokensCoded) opened.section = section.subarray(packedBytes(steps));
  else opened.bitOffset = steps;
}
