// What makes a report more than text: tables that sort, and examples that play. It follows player.js and spectrogram.js
// in one module.

const RATE = 16000; // Hz of all sounds in a report

// Tables

/** Headings become buttons: the first click puts the best on top, the next one turns it round. */
function makeSortable(table) {
  if ([...table.tBodies].every((body) => body.querySelectorAll("tr:not(.group)").length < 2)) return;
  table.tHead.querySelectorAll("th").forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const before = heading.getAttribute("aria-sort");
      const first = heading.textContent.includes("↑") ? "descending" : "ascending";
      const order = before === null ? first : before === "ascending" ? "descending" : "ascending";
      table.tHead.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", order);
      for (const body of table.tBodies) sortRows(body, column, order === "ascending" ? 1 : -1);
    });
  });
}

/** Rows without a value stay at the end either way. */
function sortRows(body, column, sign) {
  const value = (row) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  };
  const empty = (row) => row.cells[column].textContent === "–";
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  const rows = [...body.querySelectorAll("tr:not(.group)")];
  rows.sort((a, b) => empty(a) - empty(b) || sign * compare(value(a), value(b)));
  body.append(...rows);
}

// Examples: one player for all of them, made by the first click, for browsers let no page sound before

let player = null;
let active = null;

class Example {
  constructor(article) {
    this.article = article;
    this.rows = [...article.querySelectorAll("li")];
    this.button = article.querySelector(".play");
    this.button.addEventListener("click", () => this.toggle());
    this.rows.forEach((row, index) => {
      row.querySelector(".hear").addEventListener("click", () => this.hear(index));
      row.querySelector(".picture").addEventListener("click", (event) => {
        const box = event.currentTarget.getBoundingClientRect();
        this.hear(index, ((event.clientX - box.left) / box.width) * this.duration);
      });
    });
  }

  async load() {
    const decoder = new OfflineAudioContext(1, 1, RATE);
    const decode = async (row) => {
      const bytes = Uint8Array.from(atob(row.dataset.sound), (character) => character.charCodeAt(0));
      return decoder.decodeAudioData(bytes.buffer);
    };
    this.buffers = await Promise.all(this.rows.map(decode));
    this.duration = Math.min(...this.buffers.map((buffer) => buffer.duration));
    const spectrograms = this.buffers.map((buffer) => spectrogram(buffer.getChannelData(0), buffer.sampleRate));
    this.pictures = spectrograms.map((one) => picture(one, spectrograms[0].peak));
    this.draw();
    this.show();
    this.article.dataset.ready = "";
  }

  draw() {
    this.rows.forEach((row, index) => {
      const canvas = row.querySelector("canvas");
      const { width, height } = canvas.getBoundingClientRect();
      const ratio = Math.max(2, window.devicePixelRatio || 1); // sharp on paper too
      [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
      const context = canvas.getContext("2d");
      context.imageSmoothingQuality = "high";
      if (canvas.width && canvas.height) context.drawImage(this.pictures[index], 0, 0, canvas.width, canvas.height);
    });
  }

  activate() {
    if (!player) {
      player = new Player();
      player.addEventListener("change", () => active.show());
      player.addEventListener("position", () => active.move());
    }
    if (active === this) return;
    player.pause();
    const before = active;
    active = this;
    player.load(this.buffers);
    player.setLoop(true);
    before?.show();
  }

  hear(index, seconds) {
    if (!this.buffers || !(index in this.buffers)) return undefined;
    this.activate();
    if (seconds !== undefined) player.seek(seconds);
    player.select(index);
    this.show();
    return player.play();
  }

  toggle() {
    if (!this.buffers) return undefined;
    this.activate();
    return player.toggle();
  }

  show() {
    const mine = active === this;
    this.button.textContent = mine && player.playing ? "Pause" : "Play";
    this.rows.forEach((row, index) => {
      const heard = index === (mine ? player.selected : 0);
      row.querySelector(".hear").setAttribute("aria-pressed", heard);
      row.classList.toggle("heard", heard);
    });
    this.move();
  }

  move() {
    const at = active === this ? player.position : 0;
    this.article.querySelector(".time").textContent = `${at.toFixed(1)} of ${this.duration.toFixed(1)} s`;
    for (const head of this.article.querySelectorAll(".head")) head.style.left = `${(100 * at) / this.duration}%`;
  }
}

function onKey(event) {
  const example = active || examples[0];
  if (!example || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.key === " " && event.target.tagName !== "BUTTON") {
    event.preventDefault();
    example.toggle();
  } else if (/^[0-9]$/.test(event.key)) {
    example.hear(Number(event.key));
  }
}

document.querySelectorAll(".measured table").forEach(makeSortable);
const examples = [...document.querySelectorAll(".example")].map((article) => new Example(article));
document.addEventListener("keydown", onKey);
for (const example of examples) {
  example.load().catch((error) => {
    example.article.querySelector(".time").textContent = `This browser cannot play it: ${error.message}`;
  });
}
new ResizeObserver(() => examples.filter(({ pictures }) => pictures).forEach((example) => example.draw())).observe(document.body);
