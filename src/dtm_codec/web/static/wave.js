// The wave of the first sound of a page, with the loop and the playhead on it.

import { byId, css, sized } from "./common.js";
import { player } from "./stage.js";

let shown = null; // peaks of the sound

export function showWave(buffer) {
  shown = peaks(buffer);
  drawWave();
}

function peaks(buffer, columns = 600) {
  const samples = buffer.getChannelData(0);
  const width = Math.ceil(samples.length / columns);
  return Array.from({ length: columns }, (_, i) => samples.subarray(i * width, (i + 1) * width).reduce((most, x) => Math.max(most, Math.abs(x)), 0));
}

export function drawWave() {
  if (byId("page").hidden || !shown) return;
  const { context, width, height } = sized(byId("wave-canvas"));
  context.clearRect(0, 0, width, height);
  const most = Math.max(...shown, 1e-6);
  const [start, end] = player.region.map((seconds) => (seconds / player.duration) * width);
  const [inside, outside] = [css("--accent"), css("--line")];
  shown.forEach((peak, i) => {
    const x = (i / shown.length) * width;
    const tall = Math.max(1, (peak / most) * (height - 10));
    context.fillStyle = x >= start && x < end ? inside : outside;
    context.fillRect(x, (height - tall) / 2, Math.max(0.8, width / shown.length - 0.4), tall);
  });
  showPosition();
}

export function showPosition() {
  const wave = byId("wave");
  const head = wave.querySelector(".playhead");
  head.style.transform = `translateX(${(player.position / (player.duration || 1)) * wave.clientWidth}px)`;
}

export function listenToWave(wave) {
  let from = null;
  const at = (event) => {
    const box = wave.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) * player.duration;
  };
  wave.addEventListener("pointerdown", (event) => {
    from = at(event);
    wave.setPointerCapture(event.pointerId);
  });
  wave.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const [start, end] = [from, at(event)].sort((a, b) => a - b);
    if (!loopFrom(start, end)) player.seek(start);
    from = null;
  });
  wave.addEventListener("pointercancel", () => (from = null));
}

export function showLoop() {
  const [start, end] = player.region;
  const partial = end - start < player.duration - 0.01;
  byId("loop-text").textContent = partial ? `Loop ${start.toFixed(1)} – ${end.toFixed(1)} s` : "";
  byId("loop-clear").hidden = !partial;
}

/** Loop over a part that is long enough to be heard; true if it is. */
function loopFrom(start, end) {
  const long = end - start >= 0.2;
  if (long) player.setLoop(true, start, end);
  return long;
}

export const loopHere = (end) => {
  const [start, stop] = player.region;
  return end ? loopFrom(start, player.position) : loopFrom(player.position, stop);
};
