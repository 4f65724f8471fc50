// Elements: text is always set as text, whatever a name contains.

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Fill a table; a cell is a text, or a td or th of its own.
const fillTable = (id, head, rows) => $(id).replaceChildren(...tableParts(head, rows));

function tableParts(head, rows) {
  const cell = (content) => (content instanceof HTMLTableCellElement ? content : make("td", {}, content));
  const titles = head.map((text) => make("th", { scope: "col" }, text));
  const body = rows.map((row) => make("tr", {}, ...row.map(cell)));
  return [make("thead", {}, make("tr", {}, ...titles)), make("tbody", {}, ...body)];
}

// Fill a select with [value, text] pairs, keep its value if it is still there, and return what it has.
function fillSelect(id, pairs, value) {
  $(id).replaceChildren(...pairs.map(([key, text]) => make("option", { value: key }, text)));
  $(id).value = value;
  if ($(id).selectedIndex < 0) $(id).selectedIndex = 0;
  return $(id).value || null;
}

function groupCell(group, more = "") {
  const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
  swatch.style.background = group.colour;
  return make("th", { scope: "row" }, swatch, group.title + more);
}

function definitions(entries) {
  const known = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return make("dl", {}, ...known.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
}

function copyable(text) {
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  });
  return make("div", { class: "command" }, make("pre", { tabindex: "0" }, text), button);
}

// Counts as small bars.
function histogram(counts) {
  const space = "http://www.w3.org/2000/svg";
  const draw = (tag, attributes) => {
    const element = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const label = `rows of each label: ${counts.join(", ")}`;
  const frame = { viewBox: `0 0 ${counts.length} 10`, preserveAspectRatio: "none", class: "histogram" };
  const svg = draw("svg", { ...frame, role: "img", "aria-label": label });
  const most = Math.max(...counts, 1);
  counts.forEach((count, i) => {
    const height = (10 * count) / most;
    svg.append(draw("rect", { x: i + 0.1, y: 10 - height, width: 0.8, height }));
  });
  svg.append(draw("title", {}));
  svg.lastChild.textContent = label;
  return svg;
}
