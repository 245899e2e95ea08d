// Pictures of sound: the colours that all pages share, and a spectrogram from samples.

const STOPS = [
  [0, 0, 4], [28, 16, 68], [79, 18, 123], [129, 37, 129], [181, 54, 122], [229, 80, 100], [251, 135, 97], [254, 194, 135], [252, 253, 191],
];
const PALETTE = Array.from({ length: 256 }, (_, level) => {
  const place = (level / 255) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[low].map((value, i) => value + (STOPS[low + 1][i] - value) * (place - low));
});

const SIZE = 512; // of the transform: 32 ms at 16 kHz
const HOP = 0.005; // s
const MOST_COLUMNS = 1600;
const RANGE = 75; // dB from the loudest cell down to black

/** Power in dB of equally spaced windows over all samples; bin 0 is 0 Hz, the last half the rate. */
export function spectrogram(samples, rate) {
  const columns = Math.max(1, Math.min(MOST_COLUMNS, Math.round(samples.length / rate / HOP)));
  const bins = SIZE / 2 + 1;
  const cells = new Float32Array(columns * bins);
  const [real, imaginary] = [new Float64Array(SIZE), new Float64Array(SIZE)];
  let peak = -Infinity;
  for (let column = 0; column < columns; column++) {
    const start = Math.round(((column + 0.5) * samples.length) / columns) - SIZE / 2;
    for (let i = 0; i < SIZE; i++) {
      real[i] = (samples[start + i] || 0) * 0.5 * (1 - Math.cos((2 * Math.PI * i) / SIZE));
      imaginary[i] = 0;
    }
    transform(real, imaginary);
    for (let bin = 0; bin < bins; bin++) {
      const level = 10 * Math.log10(real[bin] ** 2 + imaginary[bin] ** 2 + 1e-10);
      cells[column * bins + bin] = level;
      peak = Math.max(peak, level);
    }
  }
  return { columns, bins, cells, peak };
}

/** A spectrogram as a picture. Pictures with one peak can be compared. */
export function picture({ columns, bins, cells }, peak) {
  return paint(columns, bins, (cell) => Math.max(0, Math.min(255, Math.round(255 * (1 + (cells[cell] - peak) / RANGE)))));
}

/** A picture with the lowest frequency at the bottom. levelOf: cell -> 0 ... 255, cells column by column. */
export function paint(columns, bins, levelOf) {
  const canvas = new OffscreenCanvas(columns, bins);
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, bins);
  for (let x = 0; x < columns; x++) {
    for (let y = 0; y < bins; y++) {
      const at = 4 * ((bins - 1 - y) * columns + x);
      [image.data[at], image.data[at + 1], image.data[at + 2]] = PALETTE[levelOf(x * bins + y)];
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** Fourier transform in place, of a power of two samples. */
function transform(real, imaginary) {
  const size = real.length;
  for (let i = 1, j = 0; i < size; i++) {
    let bit = size >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) {
      [real[i], real[j]] = [real[j], real[i]];
      [imaginary[i], imaginary[j]] = [imaginary[j], imaginary[i]];
    }
  }
  for (let length = 2; length <= size; length *= 2) {
    const angle = (-2 * Math.PI) / length;
    for (let k = 0; k < length / 2; k++) {
      const [cosine, sine] = [Math.cos(angle * k), Math.sin(angle * k)];
      for (let even = k; even < size; even += length) {
        const odd = even + length / 2;
        const re = real[odd] * cosine - imaginary[odd] * sine;
        const im = real[odd] * sine + imaginary[odd] * cosine;
        real[odd] = real[even] - re;
        imaginary[odd] = imaginary[even] - im;
        real[even] += re;
        imaginary[even] += im;
      }
    }
  }
}
