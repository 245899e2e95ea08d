// The demo page: a recording goes up once, then every move of the slider brings back what the codec made of it.

import { byId, download, element, fromBase64, isShortcut, request, show } from "./common.js";
import { View, drawRate, drawSpectrogram, spectrogramImage } from "./figures.js";
import { Player } from "./player.js";
import { toWav } from "./wav.js";

const [ORIGINAL, DECODED, OTHER] = [0, 1, 2];
const DEBOUNCE = 120; // ms after the slider's last move
const PLAY = "M5 3.5v13l11-6.5z";
const PAUSE = "M5 3.5h3.6v13H5zM11.4 3.5H15v13h-3.6z";

const player = new Player();
const state = { model: null, clip: null, encoding: null, other: null, images: [null, null, null], view: new View(1), loading: 0 };
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
  showUsefulRange(slider, model);
  for (const [name, bitrate] of Object.entries(model.qualities)) {
    const button = element("button", { text: name[0].toUpperCase() + name.slice(1), "data-bitrate": bitrate, id: `quality-${name}` });
    button.addEventListener("click", () => {
      slider.value = bitrate;
      bitrateMoved();
    });
    byId("qualities").append(button);
  }
  for (const [name, title] of Object.entries(model.others)) byId("other").add(new Option(title, name));
  byId("compare").hidden = !Object.keys(model.others).length;
  showBitrate();
}

/** The rates that the model was trained for are darker on the slider's track. */
function showUsefulRange(slider, { trained, fixed_rate: fixed }) {
  if (!trained || fixed) return;
  const place = (bitrate) => Math.max(0, Math.min(1, (bitrate - slider.min) / (slider.max - slider.min)));
  const [low, high] = trained.map((bitrate) => `calc(12px + ${place(bitrate)} * (100% - 24px))`); // the thumb is 24 px wide
  slider.style.setProperty("--track", `linear-gradient(to right, var(--line) ${low}, var(--muted) ${low} ${high}, var(--line) ${high})`);
  byId("bitrate-useful").textContent = `trained at ${trained.join(" – ")}`;
}

/** Run `get`, which answers a clip, and show it under `name`; a newer recording overtakes an older one. */
async function load(name, get) {
  const turn = ++state.loading;
  show(byId("message"));
  byId("source-hint").textContent = `Loading ${name} …`;
  try {
    const { clip, note } = await get();
    if (turn !== state.loading) return;
    const buffer = await player.decode(fromBase64(clip.audio).buffer);
    state.clip = clip;
    state.encoding = null;
    state.other = null;
    state.images = [spectrogramImage(clip.spectrogram), null, null];
    state.view = new View(clip.duration_s);
    player.load([buffer, buffer, buffer]);
    player.setLoop(byId("loop").checked);
    player.select(ORIGINAL);
    hideEncoding();
    byId("source-name").textContent = name;
    byId("source-hint").textContent = note || "Drop another file here, or record.";
    byId("position").max = clip.duration_s;
    byId("caption-original").textContent = `${clip.duration_s.toFixed(1)} s, ${number.format(16 * state.model.sample_rate / 1000)} kbit/s as PCM`;
    for (const id of ["play", "hear-original", "position", "zoom-in", "zoom-out"]) byId(id).disabled = false;
    draw();
  } catch (error) {
    if (turn === state.loading) byId("source-hint").textContent = "Drop a file here, record, or use the sample.";
    return fail(new Error(`${name}: ${error.message}`));
  }
  await encode().catch(fail);
  await compare().catch(fail);
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
  const level = watchLevel(stream);
  const parts = [];
  recorder = new MediaRecorder(stream);
  recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
  recorder.addEventListener("stop", () => {
    clearTimeout(limit);
    level.stop();
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
  byId("level").hidden = !on;
}

/** How loud it is and how long it lasts, until `stop`. */
function watchLevel(stream) {
  const context = new AudioContext();
  const ear = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(ear);
  const samples = new Float32Array(ear.fftSize);
  const began = performance.now();
  let going = true;
  const look = () => {
    if (!going) return;
    ear.getFloatTimeDomainData(samples);
    byId("level").value = samples.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    byId("source-hint").textContent = `Recording, ${((performance.now() - began) / 1000).toFixed(1)} of ${state.model.max_seconds} s`;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
  return {
    stop() {
      going = false;
      context.close();
    },
  };
}

// Encoding

let timer = 0;

function showBitrate() {
  const slider = byId("bitrate");
  byId("bitrate-value").textContent = number.format(slider.value);
  slider.setAttribute("aria-valuetext", `${slider.value} bits a second`);
  for (const button of byId("qualities").children) button.setAttribute("aria-pressed", button.dataset.bitrate === slider.value);
}

function bitrateMoved() {
  showBitrate();
  if (state.encoding) showStale(true);
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
  if (state.encoding) showStale(true);
  try {
    for (let asked = 0; asked !== wanted && state.clip; ) {
      asked = wanted;
      await encodeClip(state.clip).catch((error) => {
        if (asked === wanted) throw error;
      });
    }
  } finally {
    document.body.removeAttribute("aria-busy");
    showStale(false);
  }
}

/** What is shown belongs to another bitrate than the slider's. */
function showStale(stale) {
  for (const id of ["bits", "figure-decoded", "figure-rate"]) byId(id).classList.toggle("stale", stale);
  byId("stale").hidden = !stale;
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
  for (const figure of document.querySelectorAll("[id^=written-], [id^=nominal-], [id^=fact-]")) figure.textContent = "–";
  for (const id of ["caption-rate", "status"]) byId(id).textContent = "";
  for (const id of DECODED_BUTTONS) byId(id).disabled = true;
}

function showEncoding({ nominal, written, duration_s: duration, file_bytes: bytes, tokens, steps, token_rate: rate, keep_ratio: ratio, seconds }) {
  for (const part of Object.keys(nominal)) {
    byId(`written-${part}`).textContent = number.format(written[part] / duration);
    byId(`nominal-${part}`).textContent = number.format(nominal[part] / duration);
  }
  byId("split-content").style.flexGrow = written.content;
  byId("split-position").style.flexGrow = written.position;
  byId("fact-tokens").textContent = `${number.format(tokens)} of ${number.format(steps)}`;
  byId("fact-rate").textContent = `${rate.toFixed(1)} Hz`;
  byId("fact-file").textContent = `${number.format(bytes)} bytes`;
  byId("fact-time").textContent = `${seconds.toFixed(2)} s`;
  byId("caption-rate").textContent = `mean ${rate.toFixed(1)} Hz, ${(100 * ratio).toFixed(0)} % kept`;
  byId("status").textContent = `Encoded: ${number.format(written.total)} bits, ${number.format(written.total / duration)} bits a second, ${number.format(tokens)} tokens.`;
  for (const id of DECODED_BUTTONS) byId(id).disabled = false;
  draw();
}

// Another codec

/** What the chosen codec makes of the clip at hand, beside ours. */
async function compare() {
  const [name, clip] = [byId("other").value, state.clip];
  byId("hear-other").hidden = !name;
  byId("hear-other").disabled = true;
  if (player.selected === OTHER) player.select(state.encoding ? DECODED : ORIGINAL);
  if (!name || !clip) return draw();
  byId("hear-other").textContent = byId("other").selectedOptions[0].textContent;
  const answer = await request(`/api/demo/clips/${clip.id}/comparisons`, { json: { codec: name } });
  const buffer = await player.decode(fromBase64(answer.audio).buffer);
  if (clip !== state.clip || name !== byId("other").value) return;
  state.other = answer;
  state.images[OTHER] = spectrogramImage(answer.spectrogram);
  player.replace(OTHER, buffer);
  byId("hear-other").disabled = false;
}

// Pictures

function draw() {
  const { view, encoding, model } = state;
  if (!model) return;
  const stepSeconds = 1 / model.frame_rate;
  const kept = encoding && byId("kept").checked ? { positions: encoding.positions, stepSeconds } : null;
  const other = player.selected === OTHER && state.other;
  drawSpectrogram(byId("original"), state.images[ORIGINAL], view, model.sample_rate, kept);
  drawSpectrogram(byId("decoded"), state.images[other ? OTHER : DECODED], view, model.sample_rate, other ? null : kept);
  byId("title-decoded").textContent = other ? other.title : "Decoded";
  const bps = other ? other.bps : encoding && encoding.written.total / encoding.duration_s;
  byId("caption-decoded").textContent = bps ? `${number.format(bps)} bits/s` : "";
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

let shownVersion = ORIGINAL; // the pictures are of the version that is heard

function showPlayer() {
  const { playing, selected } = player;
  byId("play-icon").setAttribute("d", playing ? PAUSE : PLAY);
  byId("play").querySelector("span").textContent = playing ? "Pause" : "Play";
  byId("hear-original").setAttribute("aria-pressed", selected === ORIGINAL);
  byId("hear-decoded").setAttribute("aria-pressed", selected === DECODED);
  byId("hear-other").setAttribute("aria-pressed", selected === OTHER);
  byId("figure-original").classList.toggle("heard", playing && selected === ORIGINAL);
  byId("figure-decoded").classList.toggle("heard", playing && selected !== ORIGINAL);
  if (selected !== shownVersion) {
    shownVersion = selected;
    draw();
  }
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
  const action = isShortcut(event) && !byId("recording").hidden && actions[event.key.toLowerCase()];
  if (!action) return;
  event.preventDefault();
  action();
});

byId("play").addEventListener("click", () => player.toggle());
byId("hear-original").addEventListener("click", () => player.select(ORIGINAL));
byId("hear-decoded").addEventListener("click", () => player.select(DECODED));
byId("hear-other").addEventListener("click", () => player.select(OTHER));
byId("other").addEventListener("change", () => compare().catch(fail));
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
