// The listening test. The server holds all state but drafts: after a reload, the test goes on where it was.

import { byId, css, element, isShortcut, request, requestBytes, show, sized } from "./common.js";
import { Player } from "./player.js";

const STORED = "dtm-listening"; // in localStorage: token, volume, pages passed, drafts of the current page
const RETRIES = 4;
const WORDS = ["Bad", "Poor", "Fair", "Good", "Excellent"];

const player = new Player();
const memory = { token: null, volume: 70, volumeDone: false, trainingDone: false, drafts: {}, ...recall() };
const page = { kind: null, stimuli: [], reference: null, sliders: [], peaks: null };
let session = null;
let saving = false;

function recall() {
  try {
    return JSON.parse(localStorage.getItem(STORED)) || {};
  } catch {
    return {};
  }
}

const remember = (changes) => localStorage.setItem(STORED, JSON.stringify(Object.assign(memory, changes)));
const headers = () => ({ "X-Listener-Token": memory.token });
const sounds = (ids) => Promise.all(ids.map(async (id) => player.decode(await requestBytes(`/api/listening/stimuli/${id}`, { headers: headers() }))));

// From page to page

async function begin() {
  const test = await request("/api/listening");
  byId("title").textContent = document.title = test.title;
  byId("summary").textContent = `You will hear ${test.trials} ${test.trials === 1 ? "recording" : "recordings"}, each in ${test.stimuli} versions${test.training ? ", after a page to get used to it" : ""}.`;
  show(byId("instructions"), test.instructions);
  player.setVolume(gain());
  if (memory.token) {
    try {
      session = await request("/api/listening/session", { headers: headers() });
    } catch (error) {
      if (error.status !== 401) throw error;
      remember({ token: null, volumeDone: false, trainingDone: false, drafts: {} });
    }
  }
  await proceed();
}

async function proceed() {
  if (!session) return open("welcome");
  showProgress();
  if (!session.trial) return finish();
  if (!memory.volumeDone) return openVolume();
  if (session.training && !memory.trainingDone) {
    return openPage("training", session.training, "Training", "Try it out: play, switch, rate. These ratings are not kept.");
  }
  const title = `Recording ${session.trial.number} of ${session.total}`;
  return openPage("trial", session.trial, title, "Rate each version against the reference. One of them is the reference itself: 100.");
}

function open(id) {
  byId("again").hidden = true;
  for (const name of ["welcome", "volume", "page", "done", "loading"]) byId(name).hidden = name !== id;
  window.scrollTo(0, 0);
}

function finish() {
  player.pause();
  byId("listener").textContent = session.listener;
  open("done");
}

function showProgress() {
  const { completed, total } = session;
  byId("progress").hidden = false;
  byId("progress-bar").max = total;
  byId("progress-bar").value = completed;
  byId("progress-text").textContent = `${completed} of ${total} done`;
}

// Volume

const gain = () => (memory.volume / 100) ** 2; // steps that sound even

async function openVolume() {
  open("loading");
  player.load(await sounds([(session.training || session.trial).reference]));
  player.setLoop(true);
  page.kind = "volume";
  byId("volume-level").value = memory.volume;
  open("volume");
  byId("volume-play").focus();
}

// A page of stimuli: reference first in the player, then the versions

async function openPage(kind, { reference, stimuli }, title, hint) {
  open("loading");
  Object.assign(page, { kind, reference, stimuli });
  const buffers = await sounds([reference, ...stimuli.map(({ id }) => id)]);
  player.load(buffers);
  player.setLoop(true);
  page.peaks = peaks(buffers[0]);
  page.sliders = stimuli.map(({ id, rating }, index) => row(id, index, rating));
  byId("stimuli").replaceChildren(...page.sliders.map((slider) => slider.closest("li")));
  byId("page-title").textContent = title;
  byId("page-hint").textContent = hint;
  byId("next").textContent = kind === "training" ? "Start the test" : "Save and continue";
  open("page");
  byId("page-title").focus();
  showMissing();
  showPlayer();
  drawWave();
}

function row(id, index, stored) {
  const draft = memory.drafts[id] || {};
  const value = stored ?? draft.value;
  const name = `Version ${index + 1}`;
  const button = element("button", { type: "button", text: name, "aria-pressed": "false" });
  const slider = element("input", { type: "range", min: 0, max: 100, step: 1, value: value ?? 50, "aria-label": `Rating of version ${index + 1}` });
  const output = element("output");
  slider.disabled = stored !== null && stored !== undefined;
  slider.classList.toggle("unset", value === undefined);
  slider.dataset.id = id;
  button.addEventListener("click", () => hear(index + 1));
  slider.addEventListener("input", () => rated(slider));
  slider.addEventListener("click", () => rated(slider)); // where it stands already is a rating too
  slider.addEventListener("keydown", (event) => stepSlider(event, slider));
  slider.addEventListener("focus", () => player.buffers.length && page.sliders.includes(slider) && hear(index + 1, false));
  element("li", { class: "stimulus" }, button, element("div", { class: "zones" }, slider), output);
  showRating(slider, output);
  return slider;
}

/** Page keys go by tens in every browser. */
function stepSlider(event, slider) {
  const step = { PageUp: 10, PageDown: -10 }[event.key];
  if (!step || slider.disabled) return;
  event.preventDefault();
  slider.value = Number(slider.value) + step;
  rated(slider);
}

function rated(slider) {
  slider.classList.remove("unset");
  draft(slider.dataset.id, { value: Number(slider.value) });
  showRating(slider, slider.closest("li").querySelector("output"));
  showMissing();
}

function draft(id, changes) {
  remember({ drafts: { ...memory.drafts, [id]: { ...memory.drafts[id], ...changes } } });
}

function showRating(slider, output) {
  const unset = slider.classList.contains("unset");
  const word = WORDS[Math.min(4, Math.floor(slider.value / 20))];
  output.replaceChildren(element("b", { text: unset ? "–" : slider.value }), element("span", { text: unset ? "" : word }));
  slider.setAttribute("aria-valuetext", unset ? "not rated yet" : `${slider.value}, ${word}`);
}

/** Hear a sound from where the others are: 0 is the reference, then the versions. */
function hear(index, start = true) {
  if (!(index in player.buffers)) return;
  player.select(index);
  if (start) player.play();
  if (index > 0 && document.activeElement !== page.sliders[index - 1] && start) page.sliders[index - 1].focus({ preventScroll: false });
  showPlayer();
}

function missing() {
  const count = (test) => page.stimuli.filter(({ id, rating }) => rating === null && test(memory.drafts[id] || {})).length;
  return { unheard: count((d) => !d.heard), unrated: count((d) => d.value === undefined) };
}

function showMissing() {
  const { unheard, unrated } = missing();
  const parts = [unheard && `${unheard} not heard`, unrated && `${unrated} not rated`].filter(Boolean);
  byId("next").disabled = saving || parts.length > 0;
  byId("missing").textContent = parts.length ? `Still missing: ${parts.join(", ")}.` : "All rated.";
}

// Saving: a rating counts once on the server, so sending it again does no harm

async function next() {
  if (byId("next").disabled) return;
  player.pause();
  if (page.kind === "training") {
    remember({ trainingDone: true, drafts: {} });
    return proceed();
  }
  saving = true;
  lockRated();
  byId("next").disabled = true;
  byId("missing").textContent = "Saving …";
  try {
    for (const stimulus of page.stimuli) {
      if (stimulus.rating === null) stimulus.rating = (await save(stimulus.id, memory.drafts[stimulus.id].value)).rating;
    }
    session = await request("/api/listening/session", { headers: headers() });
    remember({ drafts: {} });
    show(byId("message"));
    saving = false;
    await proceed();
  } finally {
    saving = false;
    lockRated();
    if (page.kind === "trial" && !byId("page").hidden) showMissing();
  }
}

/** What is stored cannot be changed any more, nor can anything while it is being sent. */
function lockRated() {
  page.sliders.forEach((slider, index) => {
    const { rating } = page.stimuli[index];
    slider.disabled = saving || rating !== null;
    if (rating !== null) slider.value = rating;
    showRating(slider, slider.closest("li").querySelector("output"));
  });
}

async function save(stimulus, rating) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await request("/api/listening/ratings", { json: { stimulus, rating }, headers: headers() });
    } catch (error) {
      const final = error.status >= 400 && error.status < 500;
      if (final || attempt === RETRIES) throw new Error(`Not saved yet: ${error.message} Your ratings are kept here; try again.`);
      await new Promise((resolve) => setTimeout(resolve, 400 * 2 ** attempt));
    }
  }
}

// Playing

function showPlayer() {
  const { playing, selected } = player;
  byId("play").textContent = byId("volume-play").textContent = playing ? "Pause" : "Play";
  byId("reference").setAttribute("aria-pressed", selected === 0);
  page.sliders.forEach((slider, index) => {
    const item = slider.closest("li");
    item.classList.toggle("active", selected === index + 1);
    item.querySelector("button").setAttribute("aria-pressed", selected === index + 1);
  });
  if (playing && selected > 0 && page.stimuli[selected - 1] && page.kind !== "volume") {
    const { id } = page.stimuli[selected - 1];
    if (!memory.drafts[id]?.heard) {
      draft(id, { heard: true });
      showMissing();
    }
  }
  if (playing && page.kind === "volume") byId("volume-done").disabled = false;
  const [start, end] = player.region;
  const partial = end - start < player.duration - 0.01;
  byId("loop-text").textContent = partial ? `Loop ${start.toFixed(1)} – ${end.toFixed(1)} s` : "";
  byId("loop-clear").hidden = !partial;
  drawWave();
}

function loopFrom(start, end) {
  if (end - start >= 0.2) player.setLoop(true, start, end);
}

const loopHere = (end) => {
  const [start, stop] = player.region;
  return end ? loopFrom(start, player.position) : loopFrom(player.position, stop);
};

// The wave

function peaks(buffer, columns = 600) {
  const samples = buffer.getChannelData(0);
  const width = Math.ceil(samples.length / columns);
  return Array.from({ length: columns }, (_, i) => samples.subarray(i * width, (i + 1) * width).reduce((most, x) => Math.max(most, Math.abs(x)), 0));
}

function drawWave() {
  if (byId("page").hidden || !page.peaks) return;
  const { context, width, height } = sized(byId("wave-canvas"));
  context.clearRect(0, 0, width, height);
  const most = Math.max(...page.peaks, 1e-6);
  const [start, end] = player.region.map((seconds) => (seconds / player.duration) * width);
  const [inside, outside] = [css("--accent"), css("--line")];
  page.peaks.forEach((peak, i) => {
    const x = (i / page.peaks.length) * width;
    const tall = Math.max(1, (peak / most) * (height - 10));
    context.fillStyle = x >= start && x < end ? inside : outside;
    context.fillRect(x, (height - tall) / 2, Math.max(0.8, width / page.peaks.length - 0.4), tall);
  });
  showPosition();
}

function showPosition() {
  const wave = byId("wave");
  const head = wave.querySelector(".playhead");
  head.style.transform = `translateX(${(player.position / (player.duration || 1)) * wave.clientWidth}px)`;
}

function listenToWave(wave) {
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
    if (end - start >= 0.2) loopFrom(start, end);
    else player.seek(start);
    from = null;
  });
  wave.addEventListener("pointercancel", () => (from = null));
}

// Wiring

function attempt(work) {
  return Promise.resolve().then(work).catch((error) => {
    show(byId("message"), error.message, true);
    byId("again").hidden = byId("loading").hidden; // a page that did not load can be asked for again
  });
}

const neighbour = (by) => hear(Math.max(0, Math.min(page.stimuli.length, player.selected + by)));

const actions = {
  " ": () => player.toggle(),
  r: () => hear(0),
  0: () => hear(0),
  n: () => neighbour(1),
  p: () => neighbour(-1),
  "[": () => loopHere(false),
  "]": () => loopHere(true),
  "\\": () => player.setLoop(true),
  Enter: () => attempt(next),
  ...Object.fromEntries([1, 2, 3, 4, 5, 6, 7, 8, 9].map((digit) => [digit, () => hear(digit)])),
};

document.addEventListener("keydown", (event) => {
  if (byId("page").hidden || !byId("shortcuts").checked || !isShortcut(event)) return;
  const action = actions[event.key] || actions[event.key.toLowerCase()];
  if (!action || event.repeat) return;
  event.preventDefault();
  action();
});

byId("start").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    const { token, ...rest } = await request("/api/listening/listeners", { json: { name: byId("name").value } });
    session = rest;
    remember({ token, volumeDone: false, trainingDone: false, drafts: {} });
    await proceed();
  });
});
byId("volume-play").addEventListener("click", () => player.toggle());
byId("volume-level").addEventListener("input", (event) => {
  remember({ volume: Number(event.target.value) });
  player.setVolume(gain());
});
byId("volume-done").addEventListener("click", () => {
  remember({ volumeDone: true });
  attempt(proceed);
});
byId("play").addEventListener("click", () => player.toggle());
byId("reference").addEventListener("click", () => hear(0));
byId("loop-clear").addEventListener("click", () => player.setLoop(true));
byId("next").addEventListener("click", () => attempt(next));
byId("again").addEventListener("click", () => location.reload());
player.addEventListener("change", showPlayer);
player.addEventListener("position", showPosition);
listenToWave(byId("wave"));
new ResizeObserver(drawWave).observe(byId("wave"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawWave);

byId("keys").open = matchMedia("(min-width: 700px)").matches;

attempt(begin);
