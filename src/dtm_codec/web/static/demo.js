// The demo page: a recording goes up once, then every move of the slider brings back what the codec made of it.

import { byId, download, fromBase64, isShortcut, request, show } from "./common.js";
import { View, drawRate, drawSpectrogram, spectrogramImage } from "./figures.js";
import { Player } from "./player.js";
import { toWav } from "./wav.js";

const [ORIGINAL, DECODED] = [0, 1];
const DEBOUNCE = 120; // ms after the slider's last move
const PLAY = "M5 3.5v13l11-6.5z";
const PAUSE = "M5 3.5h3.6v13H5zM11.4 3.5H15v13h-3.6z";

const player = new Player();
const state = { model: null, clip: null, encoding: null, images: [null, null], view: new View(1), loading: 0 };
const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fail = (error) => show(byId("message"), error.message, true);

// Loading a recording

async function loadModel() {
  const model = (state.model = await request("/api/demo"));
  byId("model").textContent = `${model.model_id} · ${(model.parameters / 1e6).toFixed(1)} M parameters`;
  const slider = byId("bitrate");
  slider.min = model.bitrate.lowest;
  slider.max = model.bitrate.highest;
  slider.step = 10;
  slider.value = model.bitrate.default;
  slider.disabled = model.fixed_rate;
  byId("bitrate-note").hidden = !model.fixed_rate;
  byId("bitrate-low").textContent = model.bitrate.lowest;
  byId("bitrate-high").textContent = model.bitrate.highest;
  showBitrate();
}

/** Run `get`, which answers a clip, and show it under `name`; a newer recording overtakes an older one. */
async function load(name, get) {
  const turn = ++state.loading;
  show(byId("message"));
  byId("source-hint").textContent = "Loading …";
  try {
    const { clip, note } = await get();
    if (turn !== state.loading) return;
    const buffer = await player.decode(fromBase64(clip.audio).buffer);
    state.clip = clip;
    state.encoding = null;
    state.images = [spectrogramImage(clip.spectrogram), null];
    state.view = new View(clip.duration_s);
    player.load([buffer, buffer]);
    player.setLoop(byId("loop").checked);
    player.select(ORIGINAL);
    hideEncoding();
    byId("source-name").textContent = name;
    byId("source-hint").textContent = note || "Drop another file here, or record.";
    byId("position").max = clip.duration_s;
    byId("caption-original").textContent = `${clip.duration_s.toFixed(1)} s, ${number.format(16 * state.model.sample_rate / 1000)} kbit/s as PCM`;
    for (const id of ["play", "hear-original", "position", "zoom-in", "zoom-out"]) byId(id).disabled = false;
    draw();
    await encode();
  } catch (error) {
    if (turn === state.loading) byId("source-hint").textContent = "Drop a file here, record, or use the sample.";
    fail(error);
  }
}

async function upload(bytes) {
  const { sample_rate: rate, max_seconds: seconds, max_bytes: most } = state.model;
  let body = bytes;
  let note;
  try {
    const { wav, cut } = await toWav(bytes.slice(0), rate, seconds);
    body = wav;
    if (cut) note = `The first ${seconds} s of it.`;
  } catch {
    if (bytes.byteLength > most) throw new Error("This browser cannot read the file, and it is too large to send as it is.");
  }
  return { clip: await request("/api/demo/clips", { method: "POST", body, headers: { "Content-Type": "audio/wav" } }), note };
}

const loadSample = () => load("Sample: Jane Austen, read for LibriVox", async () => ({ clip: await request("/api/demo/sample", { method: "POST" }) }));
const loadFile = (file) => file && load(file.name, async () => upload(await file.arrayBuffer()));

// Recording

let recorder = null;

async function toggleRecording() {
  if (recorder) return recorder.stop();
  if (!navigator.mediaDevices) return fail(new Error("Recording needs a secure page: open it as localhost or over HTTPS."));
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  } catch {
    return fail(new Error("The microphone is not available: allow it for this page, and check that one is connected."));
  }
  player.pause();
  const parts = [];
  recorder = new MediaRecorder(stream);
  recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
  recorder.addEventListener("stop", () => {
    clearTimeout(limit);
    stream.getTracks().forEach((track) => track.stop());
    const blob = new Blob(parts, { type: recorder.mimeType });
    recorder = null;
    showRecording(false);
    load("Your recording", async () => upload(await blob.arrayBuffer()));
  });
  const limit = setTimeout(() => recorder?.stop(), 1000 * state.model.max_seconds);
  recorder.start();
  showRecording(true);
}

function showRecording(on) {
  byId("record").classList.toggle("recording", on);
  byId("record").querySelector("span").textContent = on ? "Stop" : "Record";
  if (on) byId("source-hint").textContent = "Recording; press Stop when done.";
}

// Encoding

let timer = 0;

function showBitrate() {
  const slider = byId("bitrate");
  byId("bitrate-value").textContent = number.format(slider.value);
  slider.setAttribute("aria-valuetext", `${slider.value} bits a second`);
}

function bitrateMoved() {
  showBitrate();
  clearTimeout(timer);
  timer = setTimeout(() => encode().catch(fail), DEBOUNCE);
}

let wanted = 0; // counts what was asked for
let encoding = null; // under way

/** What the slider says of the clip at hand. One request runs at a time: what was only passed over is never computed. */
function encode() {
  wanted += 1;
  encoding ||= encodeWanted().finally(() => (encoding = null));
  return encoding;
}

async function encodeWanted() {
  show(byId("message")); // now, not at the end: a message may come while this is under way
  document.body.setAttribute("aria-busy", "true");
  byId("bits").classList.add("busy");
  try {
    for (let asked = 0; asked !== wanted && state.clip; ) {
      asked = wanted;
      await encodeClip(state.clip).catch((error) => {
        if (asked === wanted) throw error;
      });
    }
  } finally {
    document.body.removeAttribute("aria-busy");
    byId("bits").classList.remove("busy");
  }
}

async function encodeClip(clip) {
  const answer = await request(`/api/demo/clips/${clip.id}/encodings`, { json: { bitrate: Number(byId("bitrate").value) } });
  const buffer = await player.decode(fromBase64(answer.audio).buffer);
  if (clip !== state.clip) return;
  const first = !state.encoding;
  state.encoding = answer;
  state.images[DECODED] = spectrogramImage(answer.spectrogram);
  player.replace(DECODED, buffer);
  if (first && !player.playing) player.select(DECODED);
  showEncoding(answer);
}

const DECODED_BUTTONS = ["hear-decoded", "download", "download-wav"];

/** Nothing is known of this clip yet: what is there belongs to the one before. */
function hideEncoding() {
  for (const figure of document.querySelectorAll("[id^=bits-], [id^=bps-], [id^=fact-]")) figure.textContent = "–";
  for (const id of ["caption-decoded", "caption-rate", "status"]) byId(id).textContent = "";
  for (const id of DECODED_BUTTONS) byId(id).disabled = true;
}

function showEncoding({ bits, bps, tokens, steps, token_rate: rate, keep_ratio: ratio, seconds }) {
  for (const part of Object.keys(bits)) {
    byId(`bits-${part}`).textContent = number.format(bits[part]);
    byId(`bps-${part}`).textContent = number.format(bps[part]);
  }
  byId("split-content").style.flexGrow = bits.content;
  byId("split-position").style.flexGrow = bits.position;
  byId("fact-tokens").textContent = `${number.format(tokens)} of ${number.format(steps)}`;
  byId("fact-rate").textContent = `${rate.toFixed(1)} Hz`;
  byId("fact-factor").textContent = `${number.format((16 * state.model.sample_rate) / bps.total)} ×`;
  byId("fact-time").textContent = `${seconds.toFixed(2)} s`;
  byId("caption-decoded").textContent = `${number.format(bps.total)} bits/s`;
  byId("caption-rate").textContent = `mean ${rate.toFixed(1)} Hz, ${(100 * ratio).toFixed(0)} % kept`;
  byId("status").textContent = `Encoded: ${number.format(bits.total)} bits, ${number.format(bps.total)} bits a second, ${number.format(tokens)} tokens.`;
  for (const id of DECODED_BUTTONS) byId(id).disabled = false;
  draw();
}

// Pictures

function draw() {
  const { view, encoding, model } = state;
  if (!model) return;
  const stepSeconds = 1 / model.frame_rate;
  const kept = encoding && byId("kept").checked ? { positions: encoding.positions, stepSeconds } : null;
  drawSpectrogram(byId("original"), state.images[ORIGINAL], view, model.sample_rate, kept);
  drawSpectrogram(byId("decoded"), state.images[DECODED], view, model.sample_rate, kept);
  drawRate(byId("rate"), view, encoding?.local_rate, { stepSeconds, mean: encoding?.token_rate ?? 0, highest: model.frame_rate });
  showPosition();
}

function showPosition() {
  const seconds = player.position;
  if (player.playing && state.view.follow(seconds)) return draw();
  byId("time").textContent = `${seconds.toFixed(1)} / ${(state.clip?.duration_s ?? 0).toFixed(1)} s`;
  byId("position").value = seconds;
  byId("position").setAttribute("aria-valuetext", `${seconds.toFixed(1)} seconds`);
  for (const head of document.querySelectorAll(".playhead")) {
    const x = state.view.x(seconds, head.parentElement.clientWidth);
    head.style.transform = `translateX(${x}px)`;
    head.hidden = !state.clip || x < 0 || x > head.parentElement.clientWidth;
  }
}

function showPlayer() {
  const { playing, selected } = player;
  byId("play-icon").setAttribute("d", playing ? PAUSE : PLAY);
  byId("play").querySelector("span").textContent = playing ? "Pause" : "Play";
  byId("hear-original").setAttribute("aria-pressed", selected === ORIGINAL);
  byId("hear-decoded").setAttribute("aria-pressed", selected === DECODED);
  byId("figure-original").classList.toggle("heard", playing && selected === ORIGINAL);
  byId("figure-decoded").classList.toggle("heard", playing && selected === DECODED);
}

function zoom(factor) {
  if (!state.clip) return;
  state.view.zoom(factor, player.position);
  draw();
}

/** Click goes to an instant, dragging a zoomed picture moves it. */
function listenToPointer(timeline) {
  let grip = null;
  timeline.addEventListener("pointerdown", (event) => {
    if (event.target.tagName !== "CANVAS" || !state.clip) return;
    grip = { x: event.clientX, start: state.view.start, canvas: event.target, moved: false };
    event.target.setPointerCapture(event.pointerId);
  });
  timeline.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const moved = event.clientX - grip.x;
    grip.moved ||= Math.abs(moved) > 4;
    if (!grip.moved || !state.view.zoomed) return;
    state.view.moveTo(grip.start - (moved / grip.canvas.clientWidth) * state.view.span);
    draw();
  });
  timeline.addEventListener("pointerup", (event) => {
    if (grip && !(grip.moved && state.view.zoomed)) {
      const box = grip.canvas.getBoundingClientRect();
      player.seek(state.view.seconds(event.clientX - box.left, box.width));
    }
    grip = null;
  });
  timeline.addEventListener("pointercancel", () => (grip = null));
}

// Wiring

const actions = {
  " ": () => player.toggle(),
  x: () => state.encoding && player.select(player.selected === ORIGINAL ? DECODED : ORIGINAL),
  l: () => byId("loop").click(),
  "+": () => zoom(0.5),
  "=": () => zoom(0.5),
  "-": () => zoom(2),
};

document.addEventListener("keydown", (event) => {
  const action = isShortcut(event) && actions[event.key.toLowerCase()];
  if (!action) return;
  event.preventDefault();
  action();
});

byId("play").addEventListener("click", () => player.toggle());
byId("hear-original").addEventListener("click", () => player.select(ORIGINAL));
byId("hear-decoded").addEventListener("click", () => player.select(DECODED));
byId("loop").addEventListener("change", (event) => player.setLoop(event.target.checked));
byId("kept").addEventListener("change", draw);
byId("zoom-in").addEventListener("click", () => zoom(0.5));
byId("zoom-out").addEventListener("click", () => zoom(2));
byId("position").addEventListener("input", (event) => player.seek(Number(event.target.value)));
byId("bitrate").addEventListener("input", bitrateMoved);
byId("record").addEventListener("click", toggleRecording);
byId("sample").addEventListener("click", loadSample);
byId("choose").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", (event) => {
  loadFile(event.target.files[0]);
  event.target.value = "";
});
byId("download").addEventListener("click", () => download(fromBase64(state.encoding.file), "speech.dtm", "application/octet-stream"));
byId("download-wav").addEventListener("click", () => download(fromBase64(state.encoding.audio), "decoded.wav", "audio/wav"));

for (const kind of ["dragover", "drop", "dragleave"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    byId("source").classList.toggle("over", kind === "dragover");
    if (kind === "drop") loadFile(event.dataTransfer.files[0]);
  });
}

player.addEventListener("change", showPlayer);
player.addEventListener("position", showPosition);
listenToPointer(byId("timeline"));
new ResizeObserver(draw).observe(byId("timeline"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

loadModel().then(loadSample).catch(fail);
