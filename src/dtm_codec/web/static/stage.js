// What every page of a listening test needs: the player, what this browser remembers, requests that try again.

import { byId, request, requestBytes, show } from "./common.js";
import { Player } from "./player.js";

const STORED = "dtm-listening"; // in localStorage: token, volume, pages passed, drafts of the current page
const RETRIES = 4;
const SECTIONS = ["welcome", "volume", "page", "done", "loading"];

export const player = new Player();
export const memory = { token: null, volume: 70, volumeDone: false, trainingDone: false, drafts: {}, ...recall() };

function recall() {
  try {
    return JSON.parse(localStorage.getItem(STORED)) || {};
  } catch {
    return {};
  }
}

export const remember = (changes) => localStorage.setItem(STORED, JSON.stringify(Object.assign(memory, changes)));
export const headers = () => ({ "X-Listener-Token": memory.token });
export const sounds = (ids) => Promise.all(ids.map(async (id) => player.decode(await requestBytes(`/api/listening/stimuli/${id}`, { headers: headers() }))));

/** What is answered but not yet saved, by the name of what it is about. */
export const draftOf = (id) => memory.drafts[id] || {};
export const draft = (id, changes) => remember({ drafts: { ...memory.drafts, [id]: { ...draftOf(id), ...changes } } });

export function open(id) {
  byId("again").hidden = true;
  for (const name of SECTIONS) byId(name).hidden = name !== id;
  window.scrollTo(0, 0);
}

export function attempt(work) {
  return Promise.resolve().then(work).catch((error) => {
    show(byId("message"), error.message, true);
    byId("again").hidden = byId("loading").hidden; // a page that did not load can be asked for again
  });
}

/** Send an answer until it is stored. An answer counts once on the server, so sending it again does no harm. */
export async function save(path, json) {
  for (let tries = 1; ; tries++) {
    try {
      return await request(path, { json, headers: headers() });
    } catch (error) {
      const final = error.status >= 400 && error.status < 500;
      if (final || tries === RETRIES) throw new Error(`Not saved yet: ${error.message} Your ratings are kept here; try again.`);
      await new Promise((resolve) => setTimeout(resolve, 400 * 2 ** tries));
    }
  }
}
