// What pages share: elements by id, requests that fail with a message, cells of tables, the microphone.

export const byId = (id) => document.getElementById(id);

/** A request to this server; answers JSON, or throws an Error with the server's own message. */
export async function request(path, options = {}) {
  const response = await send(path, options);
  return response.json();
}

/** As `request`, for bytes. */
export async function requestBytes(path, options = {}) {
  const response = await send(path, options);
  return response.arrayBuffer();
}

async function send(path, { json, ...options }) {
  if (json !== undefined) {
    options = { ...options, method: "POST", body: JSON.stringify(json) };
    options.headers = { "Content-Type": "application/json", ...options.headers };
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server cannot be reached. Is it still running?");
  }
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw Object.assign(new Error(answer.error || `The server answered ${response.status}.`), { status: response.status });
  }
  return response;
}

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** An element with text and attributes; text is never read as HTML. */
export function element(tag, { text, ...attributes } = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  if (text !== undefined) node.textContent = text;
  node.append(...children);
  return node;
}

/** Show one message in a live region, or none. */
export function show(node, text = "", isError = false) {
  node.textContent = text;
  node.classList.toggle("error", isError);
  node.hidden = !text;
}

export function download(data, name, type) {
  const link = element("a", { href: URL.createObjectURL(new Blob([data], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Is a single-key shortcut meant, or is the key for the element that has the focus? */
export function isShortcut(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const { tagName, type } = event.target;
  if (tagName === "TEXTAREA" || tagName === "SELECT" || (tagName === "INPUT" && /^(text|password)$/.test(type))) return false;
  const activates = tagName === "BUTTON" || tagName === "A" || tagName === "SUMMARY" || type === "checkbox";
  return !(activates && (event.key === " " || event.key === "Enter")) && !(type === "radio" && event.key === " ");
}

/** Fit a canvas to its box at the screen's resolution; returns a context that draws in CSS pixels. */
export function sized(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d");
  context.setTransform(w / width, 0, 0, h / height, 0, 0);
  return { context, width, height };
}

export const cell = (text) => element("td", { class: "number", text });

export const probability = (p) => (p === null ? "–" : p < 0.001 ? "< 0.001" : p.toFixed(3));

/** The microphone's stream, or an Error that says what to do. */
export async function openMicrophone() {
  if (!navigator.mediaDevices) throw new Error("The microphone needs a secure page: open it as localhost or over HTTPS.");
  try {
    return await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  } catch {
    throw new Error("The microphone is not available: allow it for this page, and check that one is connected.");
  }
}

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
