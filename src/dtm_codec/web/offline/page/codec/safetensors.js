// Arrays of a safetensors file: the length of a JSON header, the header, the data.

import { ModelError } from "./errors.js";

const KINDS = { I16: Int16Array, I32: Int32Array };

/** bytes: Uint8Array -> { name: typed array }, for the types of token statistics. */
export function readArrays(bytes) {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  if (length > bytes.length - 8) throw new ModelError(`a header of ${length} bytes in a file of ${bytes.length}`);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const arrays = {};
  for (const [
    name,
    {
      dtype,
      data_offsets: [start, end],
    },
  ] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    if (!(dtype in KINDS))
      throw new ModelError(`tensor ${name} of type ${dtype}; allowed: ${Object.keys(KINDS).join(", ")}`);
    arrays[name] = new KINDS[dtype](bytes.slice(8 + length + start, 8 + length + end).buffer);
  }
  return arrays;
}
