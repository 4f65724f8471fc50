// Numbers: middles, and how they are said. Every page has these.

const $ = (id) => document.getElementById(id);

const finite = (values) => values.filter((v) => Number.isFinite(v));

// Infinity stands for "never", so a median over seeds may be never too.
function median(values) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function format(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return typeof value === "object" ? JSON.stringify(value) : String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function amount(axis, value) {
  if (value === null || value === undefined) return "–";
  const brief = (number) => Number(number.toPrecision(3));
  if (axis === "joules") return `${format(value)} J`;
  if (axis.endsWith("seconds")) return value && value < 0.1 ? `${brief(1000 * value)} ms` : `${brief(value)} s`;
  if (axis !== "bytes") return Math.round(value).toLocaleString("en");
  const power = Math.min(3, Math.max(0, Math.floor(Math.log10(value || 1) / 3)));
  return `${brief(value / 1000 ** power)} ${["B", "kB", "MB", "GB"][power]}`;
}
