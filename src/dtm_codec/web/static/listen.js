// The listening test from page to page. The server holds all state but drafts: after a reload, it goes on where it was.

import { byId, isShortcut, request, show } from "./common.js";
import * as choosing from "./choice.js";
import * as rating from "./rating.js";
import { attempt, headers, memory, open, player, remember, sounds } from "./stage.js";
import { drawWave, listenToWave, loopHere, showLoop, showPosition, showWave } from "./wave.js";

const ID_PARAMETERS = ["listener", "PROLIFIC_PID", "workerId", "participant"]; // what sites that pay listeners add

let task = rating; // what a page asks: ratings or a choice
let kind = null; // of the page that is shown: volume, training, trial
let session = null;
let saving = false;

// From page to page

async function begin() {
  const test = await request("/api/listening");
  const choice = test.method !== "mushra";
  task = choice ? choosing : rating;
  choosing.allowNoPreference(test.no_preference);
  document.body.dataset.method = choice ? "choice" : "rating";
  byId("title").textContent = document.title = test.title;
  const pages = `${test.trials} ${choice ? "comparison" : "recording"}${test.trials === 1 ? "" : "s"}`;
  const versions = { mushra: `each in ${test.stimuli} versions`, ab: "each of two versions", abx: "each of two versions, A and B, and X, which is one of them" };
  byId("summary").textContent = `You will hear ${pages}, ${versions[test.method]}${test.training ? ", after a page to get used to it" : ""}.`;
  for (const item of document.querySelectorAll("[data-for]")) item.hidden = !item.dataset.for.split(" ").includes(test.method);
  const given = new URLSearchParams(location.search);
  byId("name").value = ID_PARAMETERS.map((name) => given.get(name)).find(Boolean) || "";
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
  if (session.training && !memory.trainingDone) return openPage("training", session.training, "Training");
  const what = task === rating ? "Recording" : "Comparison";
  return openPage("trial", session.trial, `${what} ${session.trial.number} of ${session.total}`);
}

function finish() {
  player.pause();
  byId("listener").textContent = session.listener;
  byId("code").textContent = session.code || "";
  byId("completion").hidden = !session.code;
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
  player.load(await sounds([session.volume]));
  player.setLoop(true);
  kind = "volume";
  byId("volume-level").value = memory.volume;
  open("volume");
  byId("volume-play").focus();
}

// A page of sounds and what is asked of them

async function openPage(which, content, title) {
  open("loading");
  kind = which;
  const buffers = await sounds(task.soundsOf(content));
  player.load(buffers);
  player.setLoop(true);
  task.fill(content, changed);
  byId("page-title").textContent = title;
  byId("page-hint").textContent = task.hints[kind];
  byId("next").textContent = kind === "training" ? "Start the test" : "Save and continue";
  open("page");
  byId("page-title").focus();
  changed();
  showWave(buffers[0]);
}

function changed() {
  showPlayer();
  const parts = task.missing();
  byId("next").disabled = saving || parts.length > 0;
  byId("missing").textContent = parts.length ? `Still missing: ${parts.join(", ")}.` : task.complete;
}

function showPlayer() {
  byId("play").textContent = byId("volume-play").textContent = player.playing ? "Pause" : "Play";
  if (kind === "volume") {
    if (player.playing) byId("volume-done").disabled = false;
    return;
  }
  task.showHeard();
  showLoop();
  drawWave();
}

async function next() {
  if (byId("next").disabled) return;
  player.pause();
  if (kind === "training") {
    remember({ trainingDone: true, drafts: {} });
    await proceed();
    return;
  }
  saving = true;
  byId("next").disabled = true;
  byId("missing").textContent = "Saving …";
  try {
    await task.submit();
    session = await request("/api/listening/session", { headers: headers() });
    remember({ drafts: {} });
    show(byId("message"));
    saving = false;
    await proceed();
  } finally {
    saving = false;
    if (kind === "trial" && !byId("page").hidden) changed();
  }
}

// Wiring

const neighbour = (by) => task.hear(Math.max(0, Math.min(player.buffers.length - 1, player.selected + by)));

const actions = {
  " ": () => player.toggle(),
  n: () => neighbour(1),
  p: () => neighbour(-1),
  "[": () => loopHere(false),
  "]": () => loopHere(true),
  "\\": () => player.setLoop(true),
  Enter: () => attempt(next),
};

document.addEventListener("keydown", (event) => {
  if (byId("page").hidden || !byId("shortcuts").checked || !isShortcut(event)) return;
  const known = { ...actions, ...task.keys };
  const action = known[event.key] || known[event.key.toLowerCase()];
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
byId("reference").addEventListener("click", () => task.hear(0));
byId("loop-clear").addEventListener("click", () => player.setLoop(true));
byId("next").addEventListener("click", () => attempt(next));
byId("again").addEventListener("click", () => location.reload());
player.addEventListener("change", () => (kind && kind !== "volume" && !byId("page").hidden ? changed() : showPlayer()));
player.addEventListener("position", showPosition);
listenToWave(byId("wave"));
new ResizeObserver(drawWave).observe(byId("wave"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawWave);

byId("keys").open = matchMedia("(min-width: 700px)").matches;

attempt(begin);
