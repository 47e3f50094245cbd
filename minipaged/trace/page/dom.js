// Elements and canvases. Texts enter the page only as text nodes, so that no text is ever markup.

/** make("td", {class: "x", onclick: f}, "text", child, …) */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** An icon, drawn in 16 units, because not every font has the same signs. */
function icon(path) {
  const make = (tag) => document.createElementNS("http://www.w3.org/2000/svg", tag);
  const svg = make("svg"),
    shape = make("path");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  shape.setAttribute("d", path);
  svg.append(shape);
  return svg;
}

/** Sets a text. If the element already has it, the page is not touched. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Gives a parent one child for each item. Existing children are reused, which is faster than new ones. */
function fillList(parent, items, create, update) {
  while (parent.childElementCount > items.length) parent.lastElementChild.remove();
  while (parent.childElementCount < items.length) parent.append(create());
  let child = parent.firstElementChild;
  for (const item of items) {
    update(child, item);
    child = child.nextElementSibling;
  }
}

/** Sets a chip's letter and colour. */
function setChip(element, names) {
  const name = `chip c${names.colour}`;
  if (element.className !== name) element.className = name;
  setText(element, names.letter);
}

/** A section with a heading, and a line to the right of it for the present step. */
function panel(title, name, ...children) {
  const id = `panel-${(panel.count = (panel.count ?? 0) + 1)}`;
  const aside = make("span", { class: "aside" });
  const section = make(
    "section",
    { class: `panel ${name}`, "aria-labelledby": id },
    make("h2", {}, make("span", { id }, title), aside),
    ...children,
  );
  return { section, aside };
}

/** The context of a canvas of this size in CSS pixels, cleared; sharp on every screen. */
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** A sequence's letter on its colour. */
function chip(names) {
  return make("span", { class: `chip c${names.colour}`, "aria-hidden": "true" }, names.letter);
}

/** A text from a trace, for use among other texts. Direction and control characters are shown as escapes. */
function foreign(text, attributes = {}) {
  return make("bdi", attributes, plainly(text));
}

/** The same as `foreign`, for use within a string. */
function isolate(text) {
  return `\u2068${plainly(text)}\u2069`;
}

function plainly(text) {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

const whole = new Intl.NumberFormat("en");
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const plural = (count, one, many = `${one}s`) => `${whole.format(count)} ${count === 1 ? one : many}`;
