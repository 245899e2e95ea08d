// The demo's pictures: spectrograms with the kept positions over them, and the local token rate, on one time axis.

import { css, fromBase64, sized } from "./common.js";
import { paint } from "./spectrogram.js";

const KEPT = [93, 242, 224];
const SKIPPED = [5, 8, 11];
const COMB = 14; // px: the strip below each spectrogram
const WIDE = 6; // px of a step from which lines do not hide the picture

/** A spectrogram that a server has computed. */
export function spectrogramImage({ columns, bins, cells }) {
  const bytes = fromBase64(cells);
  return paint(columns, bins, (cell) => bytes[cell]);
}

const colour = (parts) => `rgb(${parts.join(" ")})`;

/** Which seconds are on screen. */
export class View {
  constructor(duration) {
    this.duration = duration;
    this.start = 0;
    this.span = duration;
  }

  get zoomed() {
    return this.span < this.duration;
  }

  x(seconds, width) {
    return ((seconds - this.start) / this.span) * width;
  }

  seconds(x, width) {
    return this.start + (x / width) * this.span;
  }

  zoom(factor, around) {
    const place = (around - this.start) / this.span;
    this.span = Math.min(this.duration, Math.max(0.25, this.span * factor));
    this.moveTo(around - Math.min(1, Math.max(0, place)) * this.span);
  }

  moveTo(start) {
    this.start = Math.max(0, Math.min(start, this.duration - this.span));
  }

  /** Turn the page when the playhead leaves it; true if it did. */
  follow(seconds) {
    if (!this.zoomed || (seconds >= this.start && seconds <= this.start + this.span)) return false;
    this.moveTo(seconds);
    return true;
  }
}

export function drawSpectrogram(canvas, image, view, sampleRate, kept) {
  const { context, width, height } = sized(canvas);
  context.clearRect(0, 0, width, height);
  if (!image) return;
  const from = (view.start / view.duration) * image.width;
  const columns = (view.span / view.duration) * image.width;
  context.imageSmoothingQuality = "high";
  context.drawImage(image, from, 0, columns, image.height, 0, 0, width, height - COMB);
  if (kept) drawKept(context, width, height, view, kept);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (let hertz = 2000; hertz < sampleRate / 2; hertz += 2000) {
    const y = (height - COMB) * (1 - hertz / (sampleRate / 2));
    label(context, `${hertz / 1000} kHz`, 6, y);
  }
}

function label(context, text, x, y) {
  const { width } = context.measureText(text);
  context.fillStyle = "rgb(0 0 0 / 60%)";
  context.fillRect(x - 3, y - 8, width + 6, 16);
  context.fillStyle = "#ffffff";
  context.fillText(text, x, y + 0.5);
}

/** A strip below: each pixel as bright as the steps under it are kept. Where steps are wide, lines through the picture. */
function drawKept(context, width, height, view, { positions, stepSeconds }) {
  const step = (stepSeconds / view.span) * width;
  const columns = new Float32Array(Math.ceil(width) + 1);
  for (const position of positions) {
    const [from, to] = [position, position + 1].map((at) => Math.max(0, Math.min(width, view.x(at * stepSeconds, width))));
    for (let x = Math.floor(from); x < to; x++) columns[x] += Math.min(to, x + 1) - Math.max(from, x);
  }
  columns.forEach((share, x) => {
    context.fillStyle = colour(SKIPPED.map((dark, i) => Math.round(dark + (KEPT[i] - dark) * Math.min(1, share) ** 1.5)));
    context.fillRect(x, height - COMB, 1, COMB);
  });
  if (step < WIDE) return;
  context.fillStyle = colour(KEPT);
  context.globalAlpha = 0.6;
  for (const position of positions) {
    const x = view.x((position + 0.5) * stepSeconds, width);
    if (x > -1 && x < width + 1) context.fillRect(x - 0.75, 0, 1.5, height - COMB);
  }
  context.globalAlpha = 1;
}

export function drawRate(canvas, view, rates, { stepSeconds, mean, highest }) {
  const { context, width, height } = sized(canvas);
  context.clearRect(0, 0, width, height);
  const bottom = height - 18;
  const y = (rate) => 6 + (bottom - 6) * (1 - rate / highest);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.strokeStyle = css("--line");
  context.lineWidth = 1;
  for (const share of [0, 0.5, 1]) {
    context.beginPath();
    context.moveTo(0, y(share * highest));
    context.lineTo(width, y(share * highest));
    context.stroke();
  }
  if (rates) {
    const trace = () => {
      context.beginPath();
      rates.forEach((rate, step) => {
        const x = view.x((step + 0.5) * stepSeconds, width);
        if (x > -20 && x < width + 20) context.lineTo(x, y(rate));
      });
    };
    trace();
    context.lineTo(Math.min(width, view.x(view.duration, width)), bottom);
    context.lineTo(0, bottom);
    context.globalAlpha = 0.18;
    context.fillStyle = css("--content");
    context.fill();
    context.globalAlpha = 1;
    trace();
    context.strokeStyle = css("--content");
    context.lineWidth = 2;
    context.lineJoin = "round";
    context.stroke();
    context.setLineDash([5, 4]);
    context.lineWidth = 1.5;
    context.strokeStyle = css("--position");
    context.beginPath();
    context.moveTo(0, y(mean));
    context.lineTo(width, y(mean));
    context.stroke();
    context.setLineDash([]);
  }
  context.fillStyle = css("--muted");
  context.fillText(`${Math.round(highest)}`, 4, y(highest) + 8);
  context.fillText(`${Math.round(highest / 2)}`, 4, y(highest / 2) + 8);
  drawTimes(context, width, height, view);
}

function drawTimes(context, width, height, view) {
  const apart = [0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10].find((s) => (s / view.span) * width > 55) || 30;
  context.textAlign = "center";
  for (let tick = Math.ceil(view.start / apart); tick * apart <= view.start + view.span; tick++) {
    const seconds = tick * apart;
    const x = view.x(seconds, width);
    if (x < 14 || x > width - 14) continue;
    context.fillText(`${+seconds.toFixed(2)} s`, x, height - 8);
  }
  context.textAlign = "left";
}
