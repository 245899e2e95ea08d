// The demo page: a recording is read once, then every move of the slider shows what the codec made of it.
//
// Who computes is the engine's affair: engine.js of a server asks that server, engine.js of the offline page asks a
// worker in the same browser. `createEngine(player, onProgress)` gives
//   hint, another, privacy     what the page says, and `promise` in its header, if there is one
//   accept                     kinds of files that can be opened
//   describe()                 the model: model_id, parameters, sample_rate, frame_rate, fixed_rate, bitrate, max_seconds
//   sample(), load(bytes)      a clip: seconds, buffer, image, note if something is to be said of it, and `encoding` if
//                              it was a .dtm file
//   encode(clip, bitrate)      bits, bps, tokens, steps, token_rate, keep_ratio, positions, local_rate, seconds, buffer,
//                              image, and the files: dtm, wav

import { byId, download, isShortcut, show } from "./common.js";
import { createEngine } from "./engine.js";
import { View, drawRate, drawSpectrogram } from "./figures.js";
import { Player } from "./player.js";

const [ORIGINAL, DECODED] = [0, 1];
const DEBOUNCE = 120; // ms after the slider's last move
const PLAY = "M5 3.5v13l11-6.5z";
const PAUSE = "M5 3.5h3.6v13H5zM11.4 3.5H15v13h-3.6z";

const player = new Player();
const engine = createEngine(player, showProgress);
const state = { model: null, clip: null, encoding: null, view: new View(1), loading: 0 };
const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fail = (error) => show(byId("message"), error.message, true);

// Loading a recording

async function loadModel() {
  const model = (state.model = await engine.describe());
  byId("model").textContent = `${model.model_id} · ${(model.parameters / 1e6).toFixed(1)} M parameters`;
  const slider = byId("bitrate");
  slider.min = model.bitrate.lowest;
  slider.max = model.bitrate.highest;
  slider.step = 10;
  slider.value = model.bitrate.default;
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
    await ready;
    const clip = await get();
    if (turn !== state.loading) return;
    state.clip = clip;
    state.encoding = null;
    state.view = new View(clip.seconds);
    player.load([clip.buffer, clip.buffer]);
    player.setLoop(byId("loop").checked);
    player.select(ORIGINAL);
    hideEncoding();
    byId("source-name").textContent = name;
    showProgress("");
    byId("position").max = clip.seconds;
    byId("caption-original").textContent = `${clip.seconds.toFixed(1)} s, ${number.format(16 * state.model.sample_rate / 1000)} kbit/s as PCM`;
    showOriginal(!clip.encoding);
    for (const id of ["play", "position", "zoom-in", "zoom-out"]) byId(id).disabled = false;
    draw();
    if (!clip.encoding) return await encode();
    byId("bitrate").value = clip.encoding.bps.total;
    showBitrate(clip.encoding.bps.total);
    takeEncoding(clip.encoding);
  } catch (error) {
    if (turn === state.loading) showProgress("");
    fail(error);
  }
}

/** A .dtm file has no original beside it, and its bitrate is settled. */
function showOriginal(there) {
  byId("figure-original").hidden = !there;
  byId("hear-original").disabled = !there;
  const { fixed_rate: fixed } = state.model;
  byId("bitrate").disabled = fixed || !there;
  byId("bitrate-note").hidden = !fixed && there;
  byId("bitrate-note").textContent = fixed ? "This model has a fixed rate." : "The file was made at this bitrate.";
}

const loadSample = () => load("Sample: Jane Austen, read for LibriVox", () => engine.sample());
const loadFile = (file) => file && load(file.name, async () => engine.load(await file.arrayBuffer()));

/** What is being done, and how much of it is; nothing without a text. */
function showProgress(text, share) {
  byId("progress").hidden = !text;
  byId("progress").value = share ?? 0;
  byId("progress").setAttribute("aria-label", text);
  byId("source-hint").textContent = text || state.clip?.note || (state.clip ? engine.another : engine.hint);
}

// Recording

let recorder = null;

async function toggleRecording() {
  if (recorder) return recorder.stop();
  await ready;
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
    load("Your recording", async () => engine.load(await blob.arrayBuffer()));
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

function showBitrate(bitrate = byId("bitrate").value) {
  byId("bitrate-value").textContent = number.format(bitrate);
  byId("bitrate").setAttribute("aria-valuetext", `${number.format(bitrate)} bits a second`);
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
  if (clip.encoding) return;
  const answer = await engine.encode(clip, Number(byId("bitrate").value));
  if (clip === state.clip) takeEncoding(answer);
}

function takeEncoding(encoding) {
  const first = !state.encoding;
  state.encoding = encoding;
  player.replace(DECODED, encoding.buffer);
  if (first && !player.playing) player.select(DECODED);
  showEncoding(encoding);
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
  drawSpectrogram(byId("original"), state.clip?.image, view, model.sample_rate, kept);
  drawSpectrogram(byId("decoded"), state.encoding?.image, view, model.sample_rate, kept);
  drawRate(byId("rate"), view, encoding?.local_rate, { stepSeconds, mean: encoding?.token_rate ?? 0, highest: model.frame_rate });
  showPosition();
}

function showPosition() {
  const seconds = player.position;
  if (player.playing && state.view.follow(seconds)) return draw();
  byId("time").textContent = `${seconds.toFixed(1)} / ${(state.clip?.seconds ?? 0).toFixed(1)} s`;
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
  x: () => state.encoding && !state.clip.encoding && player.select(player.selected === ORIGINAL ? DECODED : ORIGINAL),
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
byId("record").addEventListener("click", () => toggleRecording().catch(fail));
byId("sample").addEventListener("click", loadSample);
byId("choose").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", (event) => {
  loadFile(event.target.files[0]);
  event.target.value = "";
});
byId("download").addEventListener("click", () => download(state.encoding.dtm, "speech.dtm", "application/octet-stream"));
byId("download-wav").addEventListener("click", () => download(state.encoding.wav, "decoded.wav", "audio/wav"));

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

byId("source-hint").textContent = engine.hint;
byId("file").accept = engine.accept;
byId("privacy").textContent = engine.privacy;
show(byId("promise"), engine.promise);
const ready = loadModel();
ready.then(() => state.loading || loadSample()).catch(fail); // what was dropped meanwhile goes before
