// The demo page: a recording is read once, then every move of the slider shows what the codec made of it.
//
// Who computes is the engine's affair: engine.js of a server asks that server, engine.js of the offline page asks a
// worker in the same browser. `createEngine(player, onProgress)` gives
//   hint, another, privacy     what the page says, and `promise` in its header, if there is one
//   accept                     kinds of files that can be opened
//   describe()                 the model: model_id, parameters, sample_rate, frame_rate, fixed_rate, bitrate, max_seconds;
//                              counts: whether a bitrate is "written" or "nominal" bits; and where there are such
//                              qualities {name: bitrate}, trained [lowest, highest], others {name: title}
//   sample(), load(bytes)      a clip: seconds, buffer, image, note if something is to be said of it, and `encoding` if
//                              it was a .dtm file
//   encode(clip, bitrate)      nominal and written bits {content, position, total}, duration_s, tokens, steps, token_rate,
//                              keep_ratio, positions, local_rate, seconds, buffer, image, and the files: dtm, wav
//   compare(clip, name)        of another codec, where there are others: title, bps, buffer, image

import { byId, download, element, isShortcut, show } from "./common.js";
import { createEngine } from "./engine.js";
import { View, drawRate, drawSpectrogram } from "./figures.js";
import { Player } from "./player.js";
import { toggleRecording } from "./recorder.js";

const [ORIGINAL, DECODED, OTHER] = [0, 1, 2];
const DEBOUNCE = 120; // ms after the slider's last move
const PLAY = "M5 3.5v13l11-6.5z";
const PAUSE = "M5 3.5h3.6v13H5zM11.4 3.5H15v13h-3.6z";

const player = new Player();
const engine = createEngine(player, showProgress);
const state = { model: null, clip: null, encoding: null, other: null, view: new View(1), loading: 0 };
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
  byId("bitrate-unit").textContent = model.counts === "written" ? "bits a second, as written" : "bits a second, nominal";
  showUsefulRange(slider, model);
  for (const [name, bitrate] of Object.entries(model.qualities ?? {})) {
    const button = element("button", { text: name[0].toUpperCase() + name.slice(1), "data-bitrate": bitrate, id: `quality-${name}` });
    button.addEventListener("click", () => {
      slider.value = bitrate;
      bitrateMoved();
    });
    byId("qualities").append(button);
  }
  for (const [name, title] of Object.entries(model.others ?? {})) byId("other").add(new Option(title, name));
  byId("compare").hidden = !Object.keys(model.others ?? {}).length;
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
    await ready;
    const clip = await get();
    if (turn !== state.loading) return;
    state.clip = clip;
    state.encoding = state.other = null;
    state.view = new View(clip.seconds);
    player.load([clip.buffer, clip.buffer, clip.buffer]);
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
    if (clip.encoding) {
      byId("bitrate").value = rateOf(clip.encoding);
      showBitrate(rateOf(clip.encoding));
      takeEncoding(clip.encoding);
    }
  } catch (error) {
    if (turn === state.loading) showProgress("");
    return fail(new Error(`${name}: ${error.message}`));
  }
  if (!state.clip.encoding) await encode().catch(fail);
  await compare().catch(fail);
}

/** Bits a second of an encoding, counted as the slider counts. */
const rateOf = (encoding) => encoding[state.model.counts].total / encoding.duration_s;

/** A .dtm file has no original beside it, and its bitrate is settled. */
function showOriginal(there) {
  byId("figure-original").hidden = !there;
  byId("hear-original").disabled = !there;
  const { fixed_rate: fixed } = state.model;
  byId("bitrate").disabled = fixed || !there;
  for (const button of byId("qualities").children) button.disabled = !there;
  byId("other").disabled = !there;
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

async function record() {
  await ready;
  const take = (blob) => load("Your recording", async () => engine.load(await blob.arrayBuffer()));
  await toggleRecording(state.model.max_seconds, () => player.pause(), take);
}

// Encoding

let timer = 0;

function showBitrate(bitrate = byId("bitrate").value) {
  byId("bitrate-value").textContent = number.format(bitrate);
  byId("bitrate").setAttribute("aria-valuetext", `${number.format(bitrate)} bits a second`);
  for (const button of byId("qualities").children) button.setAttribute("aria-pressed", Number(button.dataset.bitrate) === Number(bitrate));
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
  for (const figure of document.querySelectorAll("[id^=written-], [id^=nominal-], [id^=fact-]")) figure.textContent = "–";
  for (const id of ["caption-rate", "status"]) byId(id).textContent = "";
  for (const id of DECODED_BUTTONS) byId(id).disabled = true;
}

function showEncoding(encoding) {
  const { nominal, written, duration_s: duration, dtm, tokens, steps, token_rate: rate, keep_ratio: ratio, seconds } = encoding;
  for (const part of Object.keys(nominal)) {
    byId(`written-${part}`).textContent = number.format(written[part] / duration);
    byId(`nominal-${part}`).textContent = number.format(nominal[part] / duration);
  }
  byId("split-content").style.flexGrow = written.content;
  byId("split-position").style.flexGrow = written.position;
  byId("fact-tokens").textContent = `${number.format(tokens)} of ${number.format(steps)}`;
  byId("fact-rate").textContent = `${rate.toFixed(1)} Hz`;
  byId("fact-file").textContent = `${number.format(dtm.length)} bytes`;
  byId("fact-time").textContent = `${seconds.toFixed(2)} s`;
  byId("caption-rate").textContent = `mean ${rate.toFixed(1)} Hz, ${(100 * ratio).toFixed(0)} % kept`;
  byId("status").textContent = `Encoded: ${number.format(8 * dtm.length)} bits, ${number.format(rateOf(encoding))} bits a second, ${number.format(tokens)} tokens.`;
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
  if (!name || !clip || clip.encoding) return draw();
  byId("hear-other").textContent = byId("other").selectedOptions[0].textContent;
  const answer = await engine.compare(clip, name);
  if (clip !== state.clip || name !== byId("other").value) return;
  state.other = answer;
  player.replace(OTHER, answer.buffer);
  byId("hear-other").disabled = false;
}

// Pictures

function draw() {
  const { view, encoding, model } = state;
  if (!model) return;
  const stepSeconds = 1 / model.frame_rate;
  const kept = encoding && byId("kept").checked ? { positions: encoding.positions, stepSeconds } : null;
  drawSpectrogram(byId("original"), state.clip?.image, view, model.sample_rate, kept);
  const other = player.selected === OTHER ? state.other : null;
  drawSpectrogram(byId("decoded"), (other ?? encoding)?.image, view, model.sample_rate, other ? null : kept);
  byId("title-decoded").textContent = other?.title ?? "Decoded";
  const bps = other?.bps ?? (encoding && rateOf(encoding));
  byId("caption-decoded").textContent = bps ? `${number.format(bps)} bits/s` : "";
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
  x: () => state.encoding && !state.clip.encoding && player.select(player.selected === ORIGINAL ? DECODED : ORIGINAL),
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
byId("record").addEventListener("click", () => record().catch(fail));
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
