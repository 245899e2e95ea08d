// A page of an A/B or A/B/X test: two versions, or two and X, and one answer.

import { byId, element } from "./common.js";
import { draft, draftOf, player, save } from "./stage.js";

const NAMES = ["A", "B", "X"];
const page = { name: "", sounds: [], noPreference: false };
let changed = () => {};

export const hints = {
  training: "Try it out: play, switch, answer. This answer is not kept.",
  trial: "Listen to all of them, as often as you like, then answer.",
};

export const soundsOf = ({ sounds }) => sounds;

export function allowNoPreference(allowed) {
  page.noPreference = allowed;
}

/** Fill the page; `onChange` is called when something is answered or heard. */
export function fill({ name, sounds }, onChange) {
  changed = onChange;
  Object.assign(page, { name, sounds });
  const isX = sounds.length === 3;
  byId("hearing").replaceChildren(...sounds.map((_, index) => version(index)));
  byId("question").textContent = isX ? "Which of the two is X?" : "Which sounds better?";
  const answers = [["a", "A"], ["b", "B"], ...(page.noPreference && !isX ? [["none", "No preference"]] : [])];
  byId("answers").replaceChildren(...answers.map(([value, text]) => answer(value, text)));
}

function version(index) {
  const button = element("button", { type: "button", text: NAMES[index], "aria-label": `Hear ${NAMES[index]}`, "aria-pressed": "false" });
  button.addEventListener("click", () => hear(index));
  return button;
}

function answer(value, text) {
  const input = element("input", { type: "radio", name: "answer", value });
  input.checked = draftOf(page.name).choice === value;
  input.addEventListener("change", () => {
    draft(page.name, { choice: value });
    changed();
  });
  return element("label", { class: "answer" }, input, element("span", { text }));
}

/** Hear a version from where the others are. */
export function hear(index) {
  if (!(index in player.buffers)) return;
  player.select(index);
  player.play();
  changed();
}

const unheard = () => page.sounds.filter((id) => !draftOf(page.name).heard?.includes(id)).length;

export function missing() {
  return [unheard() && `${unheard()} not heard`, draftOf(page.name).choice === undefined && "no answer"].filter(Boolean);
}

export const complete = "Answered.";

export async function submit() {
  const inputs = byId("answers").querySelectorAll("input");
  inputs.forEach((input) => (input.disabled = true)); // what is being sent cannot be changed
  try {
    await save("/api/listening/choices", { page: page.name, choice: draftOf(page.name).choice });
  } finally {
    inputs.forEach((input) => (input.disabled = false));
  }
}

export function showHeard() {
  const { playing, selected } = player;
  [...byId("hearing").children].forEach((button, index) => button.setAttribute("aria-pressed", selected === index));
  const { heard = [] } = draftOf(page.name);
  const id = page.sounds[selected];
  if (playing && id && !heard.includes(id)) draft(page.name, { heard: [...heard, id] });
}

export const keys = Object.fromEntries(
  NAMES.flatMap((name, index) => [[name.toLowerCase(), () => hear(index)], [index + 1, () => hear(index)]]),
);
