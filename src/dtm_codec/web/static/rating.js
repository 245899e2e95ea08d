// A page of a MUSHRA test: the reference first in the player, then the versions, each with a slider.

import { byId, element } from "./common.js";
import { draft, draftOf, player, save } from "./stage.js";

const WORDS = ["Bad", "Poor", "Fair", "Good", "Excellent"];
const page = { stimuli: [], sliders: [] };
let saving = false;
let changed = () => {};

export const hints = {
  training: "Try it out: play, switch, rate. These ratings are not kept.",
  trial: "Rate each version against the reference. One of them is the reference itself: 100.",
};

export const soundsOf = ({ reference, stimuli }) => [reference, ...stimuli.map(({ id }) => id)];

/** Fill the page; `onChange` is called when something is rated or heard. */
export function fill({ stimuli }, onChange) {
  changed = onChange;
  page.stimuli = stimuli;
  page.sliders = stimuli.map(({ id, rating }, index) => row(id, index, rating));
  byId("stimuli").replaceChildren(...page.sliders.map((slider) => slider.closest("li")));
}

function row(id, index, stored) {
  const value = stored ?? draftOf(id).value;
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
  changed();
}

function showRating(slider, output) {
  const unset = slider.classList.contains("unset");
  const word = WORDS[Math.min(4, Math.floor(slider.value / 20))];
  output.replaceChildren(element("b", { text: unset ? "–" : slider.value }), element("span", { text: unset ? "" : word }));
  slider.setAttribute("aria-valuetext", unset ? "not rated yet" : `${slider.value}, ${word}`);
}

/** Hear a sound from where the others are: 0 is the reference, then the versions. */
export function hear(index, start = true) {
  if (!(index in player.buffers)) return;
  player.select(index);
  if (start) player.play();
  if (index > 0 && document.activeElement !== page.sliders[index - 1] && start) page.sliders[index - 1].focus({ preventScroll: false });
  changed();
}

export function missing() {
  const count = (test) => page.stimuli.filter(({ id, rating }) => rating === null && test(draftOf(id))).length;
  const [unheard, unrated] = [count((d) => !d.heard), count((d) => d.value === undefined)];
  return [unheard && `${unheard} not heard`, unrated && `${unrated} not rated`].filter(Boolean);
}

export const complete = "All rated.";

/** Store what is not stored yet. */
export async function submit() {
  saving = true;
  lockRated();
  try {
    for (const stimulus of page.stimuli) {
      if (stimulus.rating !== null) continue;
      const json = { stimulus: stimulus.id, rating: draftOf(stimulus.id).value };
      stimulus.rating = (await save("/api/listening/ratings", json)).rating;
    }
  } finally {
    saving = false;
    lockRated();
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

export function showHeard() {
  const { playing, selected } = player;
  byId("reference").setAttribute("aria-pressed", selected === 0);
  page.sliders.forEach((slider, index) => {
    const item = slider.closest("li");
    item.classList.toggle("active", selected === index + 1);
    item.querySelector("button").setAttribute("aria-pressed", selected === index + 1);
  });
  if (!playing || selected === 0 || !page.stimuli[selected - 1]) return;
  const { id } = page.stimuli[selected - 1];
  if (!draftOf(id).heard) draft(id, { heard: true });
}

export const keys = {
  r: () => hear(0),
  0: () => hear(0),
  ...Object.fromEntries([1, 2, 3, 4, 5, 6, 7, 8, 9].map((digit) => [digit, () => hear(digit)])),
};
