// Texts: bytes as graphmem's tables print them, and elements made of texts.

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes with a binary unit and two decimals, halves up: `1.50 GiB`, `512 B`. */
function formatBytes(nbytes) {
  if (nbytes < 1024) return `${nbytes} B`;
  let text = "";
  for (let power = 1; power <= UNITS.length; power++) {
    const unit = 1024 ** power;
    const hundredths = Math.floor(nbytes / unit) * 100 + Math.round(((nbytes % unit) * 100) / unit);
    text = `${(hundredths / 100).toFixed(2)} ${UNITS[power - 1]}`;
    if (hundredths < 102400) break;
  }
  return text;
}

const formatInteger = (number) => number.toLocaleString("en-US");
const formatShare = (part, whole) => (whole > 0 ? `${((part / whole) * 100).toFixed(1)}%` : "-");
const words = (name) => name.replaceAll("_", " ");
const byId = (id) => document.getElementById(id);

/** An element: `make("td", { class: "number" }, "12")`; attributes of null are left out. */
function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A size that shows its bytes to who points at it, and to tests. */
function size(nbytes) {
  const title = `${formatInteger(nbytes)} bytes`;
  return make("span", { class: "size", "data-bytes": nbytes, title }, formatBytes(nbytes));
}

/** The parts of a path that may break after its dots and slashes. */
function breakable(text) {
  return text.split(/(?<=[./_])/).flatMap((part, at) => (at ? [document.createElement("wbr"), part] : [part]));
}

const path = (text) => make("code", {}, ...breakable(text));

/** As many of a path's last components as fit: `h.3` of `transformer.h.3`, or nothing. */
function shortenPath(text, characters) {
  const parts = text.split(".");
  for (let start = 0; start < parts.length; start++) {
    const rest = parts.slice(start).join(".");
    if (rest.length <= characters) return rest;
  }
  return "";
}
