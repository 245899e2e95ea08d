"""Scripts that look at a page for what no page may have."""

SMALL = """
const controls = [...document.querySelectorAll("button, input[type=range]")].filter((e) => e.offsetParent);
return controls.filter((e) => e.offsetHeight < 30).map((e) => e.id);
"""

CONTRAST = """
const luminance = (colour) => {
  const channels = colour.match(/[\\d.]+/g).slice(0, 3).map((value) => {
    const c = value / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2];
};
const background = (node) => {
  for (let e = node; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$|transparent/.test(colour)) return colour;
  }
  return "rgb(255, 255, 255)";
};
const poor = [];
for (const node of document.querySelectorAll("body *")) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  if (!own || !node.offsetParent || node.disabled || node.closest(".visually-hidden")) continue;
  const [a, b] = [luminance(getComputedStyle(node).color), luminance(background(node))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) poor.push(`${node.tagName} "${node.textContent.trim().slice(0, 20)}" ${ratio.toFixed(2)}`);
}
return poor;
"""
