// Charts: a builder makes traces and layout from a palette, so that a chart can be drawn in the
// page's colours and exported in those of paper. Its `rows` are the same chart as a table, `says`
// is what a screen reader is told. A builder that has nothing to show returns null.

const builders = {};
const COARSE = matchMedia("(pointer: coarse)").matches; // a finger scrolls the page, a mouse zooms

// The colours of a theme, as the style sheet has them.
function palette(theme) {
  const probe = document.body.appendChild(make("div", { "data-theme": theme }));
  const found = {};
  for (const name of ["paper", "ink", "faint", "grid", "edge", "bad"]) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

function dressed({ layout: { xaxis, yaxis, ...rest } }, colours) {
  const axis = { gridcolor: colours.grid, zerolinecolor: colours.grid, linecolor: colours.edge };
  Object.assign(axis, { tickcolor: colours.edge, automargin: true, nticks: 6, exponentformat: "power" });
  return {
    paper_bgcolor: colours.paper,
    plot_bgcolor: colours.paper,
    font: { color: colours.ink, size: 13, family: "system-ui, sans-serif" },
    margin: { l: 60, r: 16, t: 12, b: 48 },
    hovermode: "closest",
    dragmode: COARSE ? false : "zoom",
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "normal" },
    hoverlabel: { bgcolor: colours.paper, bordercolor: colours.edge, font: { color: colours.ink } },
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, ...yaxis },
    ...rest,
  };
}

function register(id, builder) {
  const figure = document.querySelector(`[data-chart="${id}"]`);
  const buttons = ["PNG", "SVG", "CSV"].map((kind) => {
    const button = make("button", { type: "button", "aria-label": `Save the chart ${id} as ${kind}` }, kind);
    button.addEventListener("click", () => save(id, kind.toLowerCase()));
    return button;
  });
  const plot = make("div", { class: "plot", id: `${id}-chart`, role: "img" });
  figure.append(plot, make("div", { class: "exports" }, ...buttons));
  builders[id] = builder;
}

const theme = () => document.documentElement.dataset.theme;

function draw(...ids) {
  const colours = palette(theme());
  for (const id of ids) {
    const plot = $(`${id}-chart`);
    const built = builders[id](colours);
    plot.parentElement.hidden = !built;
    if (!built) continue;
    plot.setAttribute("aria-label", built.says);
    plot.style.height = built.height ? `${built.height}px` : "";
    Plotly.react(plot, built.traces, dressed(built, colours), { responsive: true, displayModeBar: false });
  }
}

const drawAll = () => draw(...Object.keys(builders));

async function save(id, kind) {
  const colours = palette("light");
  const built = builders[id](colours);
  const { width, height } = $(`${id}-chart`).getBoundingClientRect();
  const size = { width: Math.max(640, width), height: Math.max(360, height), scale: kind === "png" ? 2 : 1 };
  const figure = { data: built.traces, layout: dressed(built, colours) };
  const href =
    kind === "csv"
      ? URL.createObjectURL(new Blob([csv(built.rows)], { type: "text/csv" }))
      : await Plotly.toImage(figure, { format: kind, ...size });
  const name = `${data.title}-${id}`.replace(/[^\w.-]+/g, "-");
  make("a", { href, download: `${name}.${kind}` }).click();
}

function csv(rows) {
  const cell = (value) => {
    const text = String(value ?? "");
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",") + "\n").join("");
}

// Plotly reads a little HTML in its texts; names are not to be read so.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

const fade = (hex, alpha) => `${hex}${Math.round(alpha * 255).toString(16).padStart(2, "0")}`;
