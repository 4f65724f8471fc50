// Values as colours, and the bar that explains them.

const VIRIDIS = "#440154 #482878 #3e4a89 #31688e #26828e #1f9e89 #35b779 #6dcd59 #b4de2c #fde725".split(" ");
const UNKNOWN = "#888888";

// Logarithmic if the values are positive and span a decade, over eight decades at most.
function colouring(values) {
  const known = finite(values);
  const positive = known.filter((v) => v > 0);
  const high = Math.max(...positive);
  const low = Math.max(Math.min(...positive), high * 1e-8);
  const log = positive.length > 0 && known.every((v) => v >= 0) && high > 10 * low;
  const [from, to] = log ? [Math.log10(low), Math.log10(high)] : [Math.min(...known), Math.max(...known)];
  const place = (v) => (log ? Math.log10(Math.max(v, low)) : v);
  const share = (v) => (to > from ? (place(v) - from) / (to - from) : 0);
  return {
    colour: (v) => (Number.isFinite(v) ? viridis(share(v)) : UNKNOWN),
    ink: (v) => (share(v) > 0.6 ? "#111111" : "#ffffff"), // readable on that colour
    bars: known.length ? [colourBar(from, to, log)] : [],
  };
}

function viridis(share) {
  const at = share * (VIRIDIS.length - 1);
  const i = Math.min(Math.floor(at), VIRIDIS.length - 2);
  const channel = (hex, k) => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
  const mixed = [0, 1, 2].map((k) => channel(VIRIDIS[i], k) * (1 - at + i) + channel(VIRIDIS[i + 1], k) * (at - i));
  return `rgb(${mixed.map(Math.round).join()})`;
}

// A trace without points, for its colour bar.
function colourBar(from, to, log) {
  const colorbar = { thickness: 12, outlinewidth: 0, len: 0.9 };
  if (log) {
    const step = Math.max(1, Math.ceil((to - from) / 6));
    const lowest = Math.ceil(from);
    colorbar.tickvals = Array.from({ length: 1 + Math.floor((to - lowest) / step) }, (_, i) => lowest + i * step);
    colorbar.ticktext = colorbar.tickvals.map((v) => `10<sup>${v}</sup>`);
  }
  const colorscale = VIRIDIS.map((hex, i) => [i / (VIRIDIS.length - 1), hex]);
  const marker = { color: [from], cmin: from, cmax: to > from ? to : from + 1, colorscale, showscale: true, colorbar };
  return { x: [null], y: [null], mode: "markers", showlegend: false, hoverinfo: "skip", marker };
}
