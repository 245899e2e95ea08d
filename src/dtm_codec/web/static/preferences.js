// The results of an A/B or A/B/X test.

import { byId, cell, element, probability } from "./common.js";

const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(0)} %`);
const names = ({ first, second }, method) => (method === "abx" ? `${first} / ${second}` : `${first} over ${second}`);

export function showPreferences(results, method) {
  byId("preferences").hidden = false;
  byId("preferences").querySelector("h1").textContent = method === "abx" ? "Told apart" : "Preferences";
  byId("preferences-hint").textContent =
    method === "abx"
      ? "How often X was told right; guessing gives 50 %. p: the chance of as many or more by guessing."
      : "How often the first was preferred, of all who preferred one; 50 % is no difference. p: two-sided.";
  byId("preferences-chart").replaceChildren(...results.filter(({ share }) => share.of).map((result) => line(result, method)));
  byId("preferences-rows").replaceChildren(...results.map((result) => row(result, method)));
}

function line(result, method) {
  const { share, low, high } = result.share;
  const [interval, dot] = [element("div", { class: "interval" }), element("div", { class: "mean" })];
  interval.style.left = `${100 * low}%`;
  interval.style.width = `${100 * (high - low)}%`;
  dot.style.left = `${100 * share}%`;
  const track = element("div", { class: "track halved" }, interval, dot);
  return element("div", { class: "line" }, element("span", { class: "label", text: names(result, method) }), track, element("b", { class: "numbers", text: percent(share) }));
}

function row(result, method) {
  const { count, of, share, low, high, p } = result.share;
  const interval = share === null ? "–" : `${percent(low)} … ${percent(high)}`;
  const ties = method === "abx" ? "–" : result.ties;
  return element("tr", {}, element("th", { scope: "row", text: names(result, method) }), cell(percent(share)), cell(interval), cell(`${count} of ${of}`), cell(ties), cell(result.listeners), cell(probability(p)));
}
