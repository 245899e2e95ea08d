// The experimenter's page. The token comes in the address after '#', which never reaches a server, or is typed.

import { showPreferences } from "./preferences.js";
import { byId, cell, download, element, probability, request, requestBytes, show } from "./common.js";

let token = new URLSearchParams(location.hash.slice(1)).get("token") || "";
history.replaceState(null, "", location.pathname); // not into bookmarks or screenshots

let screened = true;

const options = () => ({ headers: { Authorization: `Bearer ${token}` } });
const text = (value, digits = 1) => (value === null ? "–" : value.toFixed(digits));
const screening = (excluded, ratings, expected) => (excluded ? "left out" : ratings < expected ? "unfinished" : "kept");

function line({ system, mean, half_width: half, low, high }) {
  const track = element("div", { class: "track" });
  const [from, to] = low === null ? [mean - (half ?? 0), mean + (half ?? 0)] : [low, high];
  const interval = element("div", { class: "interval" });
  interval.style.left = `${Math.max(0, from)}%`;
  interval.style.width = `${Math.min(100, to) - Math.max(0, from)}%`;
  const dot = element("div", { class: "mean" });
  dot.style.left = `${mean}%`;
  track.append(interval, dot);
  return element("div", { class: "line" }, element("span", { class: "label", text: system }), track, element("b", { class: "numbers", text: text(mean) }));
}

async function load() {
  const results = await request(`/api/listening/results?screening=${screened}`, options());
  byId("title").textContent = results.title;
  for (const part of document.querySelectorAll("[data-for]")) part.hidden = part.dataset.for !== results.method;
  if (results.preferences) showPreferences(results.preferences, results.method);
  const { scores = [], pairs = [] } = results;
  const left = results.listeners.filter(({ excluded }) => excluded).length;
  byId("counts").textContent = `${results.listeners.length} listeners, ${left} left out`;
  byId("screened").hidden = screened && !results.all_excluded;
  byId("unscreened").textContent = screened ? "Show all listeners" : "Screen the listeners";
  byId("screened-text").textContent = screened
    ? `All ${left} listeners who rated are left out by the screening: they missed the hidden reference. There is nothing to show.`
    : "All listeners, without screening.";
  byId("chart").replaceChildren(...scores.map(line));
  byId("scores").replaceChildren(
    ...scores.map(({ system, mean, half_width: half, low, high, ratings }) =>
      element("tr", {}, element("th", { scope: "row", text: system }), cell(text(mean)), cell(text(half)), cell(low === null ? "–" : `${text(low)} … ${text(high)}`), cell(ratings)),
    ),
  );
  byId("pairs").replaceChildren(
    ...pairs.map(({ first, second, difference, pairs, wilcoxon_p: w, t_test_p: t }) =>
      element("tr", {}, element("th", { scope: "row", text: `${first} − ${second}` }), cell(text(difference)), cell(pairs), cell(probability(w)), cell(probability(t))),
    ),
  );
  byId("listeners").replaceChildren(
    ...results.listeners.map(({ label, name, ratings, expected, excluded, code }) =>
      element("tr", {}, element("th", { scope: "row", text: label }), element("td", { text: name || "–" }), cell(`${ratings} of ${expected}`), element("td", { text: screening(excluded, ratings, expected) }), element("td", { text: code || "–" })),
    ),
  );
  show(byId("message"));
  byId("ask").hidden = true;
  byId("results").hidden = false;
}

async function attempt(work) {
  byId("loading").hidden = false;
  try {
    await work();
  } catch (error) {
    show(byId("message"), error.message, true);
    if (error.status === 401) {
      byId("results").hidden = true;
      byId("ask").hidden = false;
    }
  } finally {
    byId("loading").hidden = true;
  }
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  attempt(load);
});
byId("unscreened").addEventListener("click", () => {
  screened = !screened;
  attempt(load);
});
byId("refresh").addEventListener("click", () => attempt(load));
byId("csv").addEventListener("click", () => attempt(async () => download(await requestBytes("/api/listening/ratings.csv", options()), "ratings.csv", "text/csv")));

if (token) attempt(load);
else byId("ask").hidden = false;
