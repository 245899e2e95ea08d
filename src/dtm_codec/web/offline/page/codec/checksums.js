// CRC-32 of files and SHA-256 of token statistics. crypto.subtle would be missing on pages without TLS.

const CRC = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

/** The CRC-32 of zip and PNG. */
export function crc32(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) value = (value >>> 8) ^ CRC[(value ^ byte) & 255];
  return (value ^ 0xffffffff) >>> 0;
}

/** The first 32 bits of the fractional part of a root, exact: BigInt finds the whole root of a scaled number. */
function fraction(prime, degree) {
  const scaled = BigInt(prime) << BigInt(32 * degree);
  let low = 0n;
  for (let step = 1n << 40n; step; step >>= 1n) if ((low + step) ** BigInt(degree) <= scaled) low += step;
  return Number(BigInt.asUintN(32, low));
}

const PRIMES = [];
for (let number = 2; PRIMES.length < 64; number++) if (PRIMES.every((prime) => number % prime)) PRIMES.push(number);
const ROUNDS = Uint32Array.from(PRIMES, (prime) => fraction(prime, 3));
const START = Uint32Array.from(PRIMES.slice(0, 8), (prime) => fraction(prime, 2));

const turn = (value, bits) => (value >>> bits) | (value << (32 - bits));

/** 32 bytes (FIPS 180-4). */
export function sha256(bytes) {
  const blocks = new Uint8Array(64 * Math.ceil((bytes.length + 9) / 64));
  blocks.set(bytes);
  blocks[bytes.length] = 0x80;
  const view = new DataView(blocks.buffer);
  view.setBigUint64(blocks.length - 8, 8n * BigInt(bytes.length));
  const state = START.slice();
  const words = new Uint32Array(64);
  for (let at = 0; at < blocks.length; at += 64) {
    for (let i = 0; i < 16; i++) words[i] = view.getUint32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const x = words[i - 15];
      const y = words[i - 2];
      const s0 = turn(x, 7) ^ turn(x, 18) ^ (x >>> 3);
      const s1 = turn(y, 17) ^ turn(y, 19) ^ (y >>> 10);
      words[i] = words[i - 16] + s0 + words[i - 7] + s1;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const first = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[i] + words[i]) | 0;
      const second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g; // one by one: arrays here would take most of the time
      g = f;
      f = e;
      e = (d + first) | 0;
      d = c;
      c = b;
      b = a;
      a = (first + second) | 0;
    }
    [a, b, c, d, e, f, g, h].forEach((value, i) => (state[i] += value));
  }
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((value, i) => digest.setUint32(4 * i, value));
  return new Uint8Array(digest.buffer);
}
