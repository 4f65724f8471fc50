// The numbers of the page, and what is read off them. Nothing here draws.

const LIVE = document.documentElement.dataset.live === "true";
const UNITS = { round: "rounds", samples: "samples", bytes: "bytes", seconds: "seconds" };
Object.assign(UNITS, { network_seconds: "network seconds", joules: "joules" });

let data = prepared(JSON.parse($("data").textContent));

// All agents start at one point: the disagreement of round 0 is rounding, and spoils every scale.
function prepared(found) {
  for (const { history, agents, frames } of found.runs) {
    if (history.consensus && history.round[0] === 0) history.consensus[0] = null;
    if (agents?.consensus && frames[0] === 0) agents.consensus[0].fill(0);
  }
  return found;
}

const valuesOf = (run, key) => run.history[key] ?? [];
const first = (run, key) => finite(valuesOf(run, key))[0] ?? null;
const last = (run, key) => finite(valuesOf(run, key)).at(-1) ?? null;
const groupOf = (run) => data.groups[run.group];
const members = (group) => data.runs.filter((run) => groupOf(run) === group);
const runTitle = (run) => `${groupOf(run).title}, seed ${run.seed}`;
const measureTitle = (key) => data.measures.find((measure) => measure.key === key).title;
const eachAxis = (value) => Object.fromEntries(Object.keys(data.axes).map((axis) => [axis, value(axis)]));

// A run's curve: what it had spent and where it stood, at every evaluation that has both.
function curve(run, measure, axis) {
  const points = valuesOf(run, "round").map((round, i) => {
    return { round, x: valuesOf(run, axis)[i], y: valuesOf(run, measure)[i] };
  });
  return points.filter(({ x, y }) => Number.isFinite(x) && Number.isFinite(y));
}

// A group's curve: median, smallest and largest over those of its seeds that got to a round.
function aggregate(group, measure, axis) {
  const rounds = new Map();
  for (const point of members(group).flatMap((run) => curve(run, measure, axis))) {
    if (!rounds.has(point.round)) rounds.set(point.round, []);
    rounds.get(point.round).push(point);
  }
  const sorted = [...rounds.values()].sort((a, b) => a[0].round - b[0].round);
  return sorted.map((points) => {
    const y = points.map((point) => point.y);
    const x = median(points.map((point) => point.x));
    return { x, y: median(y), low: Math.min(...y), high: Math.max(...y), seeds: points.length };
  });
}

// y at x on the curve through the points, linear between them; null outside.
function interpolate(points, x) {
  const i = points.findIndex((point) => point.x >= x);
  if (i < 0 || x < points[0].x) return null;
  if (points[i].x === x || i === 0) return points[i].y;
  const [a, b] = [points[i - 1], points[i]];
  return a.y + ((b.y - a.y) * (x - a.x)) / (b.x - a.x);
}

// Is larger better? The paper's measures fall; a user's metric is taken to go where it went.
function rises(key) {
  if (data.measures.find((measure) => measure.key === key)?.part !== "your metrics") return false;
  return median(finite(data.runs.map((run) => last(run, key) - first(run, key)))) > 0;
}

// Where charts are cut off above: 10,000 times the start, so that one bad run does not hide the rest.
function ceiling(key) {
  const start = Math.max(...finite(data.runs.map((run) => first(run, key))));
  return !rises(key) && start > 0 ? 1e4 * start : Infinity;
}

// What a run had spent when it reached the target, for the first time or to keep it; null if never.
function reach(run, key, target, keep) {
  const up = rises(key);
  const isReached = (v) => v !== null && (up ? v >= target : v <= target);
  const values = valuesOf(run, key);
  const i = keep ? values.findLastIndex((v) => !isReached(v)) + 1 : values.findIndex(isReached);
  return i < 0 || i >= values.length ? null : eachAxis((axis) => valuesOf(run, axis)[i] ?? null);
}
