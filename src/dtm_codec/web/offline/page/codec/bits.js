// Fixed-width bit strings, most significant bit first.

export class BitWriter {
  #bytes;
  #at = 0;

  constructor(count) {
    this.#bytes = new Uint8Array(packedBytes(count));
  }

  /** The lowest `width` bits of a number, up to 24. */
  write(value, width) {
    for (let bit = width - 1; bit >= 0; bit--, this.#at++) {
      if ((value >>> bit) & 1) this.#bytes[this.#at >>> 3] |= 128 >>> (this.#at & 7);
    }
  }

  /** Zeros fill the last byte. */
  get bytes() {
    return this.#bytes;
  }
}

export class BitReader {
  #bytes;
  #at;

  constructor(bytes, start) {
    this.#bytes = bytes;
    this.#at = start;
  }

  /** The next `width` bits, up to 24; the caller has checked that they are there. */
  read(width) {
    let value = 0;
    for (let bit = 0; bit < width; bit++, this.#at++) {
      value = (value << 1) | ((this.#bytes[this.#at >>> 3] >>> (7 - (this.#at & 7))) & 1);
    }
    return value;
  }
}

/** Whole bytes that hold `count` bits. */
export const packedBytes = (count) => Math.ceil(count / 8);
