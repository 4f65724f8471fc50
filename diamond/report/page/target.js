// The target slider, and the table of what each group needed to get there.

const target = { value: null, own: false, keep: true }; // own: set by hand, so it stays

function scaleOfSlider() {
  const values = finite(data.runs.flatMap((run) => valuesOf(run, chosen.measure)));
  const known = values.every((v) => v >= 0) ? values.filter((v) => v > 0) : values;
  const [low, high] = [Math.min(...known), Math.max(...known)];
  return { low, high, log: low > 0 && high > 10 * low };
}

function fromSlider(place) {
  const { low, high, log } = scaleOfSlider();
  return log ? low * (high / low) ** place : low + (high - low) * place;
}

function toSlider(value) {
  const { low, high, log } = scaleOfSlider();
  const share = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.min(1, Math.max(0, Number.isFinite(share) ? share : 0));
}

// The hardest target that holds in the last quarter of every group that came nearer to it at all.
function easiest() {
  const up = rises(chosen.measure);
  const worst = up ? Math.min : Math.max;
  const quarter = (values) => values.slice(-Math.ceil(values.length / 4));
  const known = data.groups.map((group) => members(group).map((run) => finite(valuesOf(run, chosen.measure))));
  const ends = known
    .map((runs) => runs.filter((values) => values.length))
    .filter((runs) => runs.length)
    .map((runs) => [median(runs.map(([start]) => start)), median(runs.map((values) => worst(...quarter(values))))]);
  if (!ends.length) return null;
  const nearer = ends.filter(([start, end]) => (up ? end > start : end < start)).map(([, end]) => end);
  return worst(...(nearer.length ? nearer : ends.map(([start]) => start)));
}

function needs(group) {
  const found = members(group).map((run) => reach(run, chosen.measure, target.value, target.keep));
  const cost = eachAxis((axis) => median(found.map((spent) => spent?.[axis] ?? Infinity)));
  return { group, cost, reached: `${found.filter(Boolean).length} of ${found.length}` };
}

const factor = (value, best) => (best > 0 ? value / best : value > 0 ? Infinity : 1);

function showTarget() {
  if (!target.own && chosen.measure) target.value = easiest();
  if (target.value === null) return;
  const wanted = `${measureTitle(chosen.measure)} ${rises(chosen.measure) ? "≥" : "≤"} ${format(target.value)}`;
  $("target-label").textContent = `Target: ${wanted}`;
  $("target").value = Math.round(1000 * toSlider(target.value));
  $("target").setAttribute("aria-valuetext", wanted);
  if (document.activeElement !== $("target-value")) $("target-value").value = Number(target.value.toPrecision(4));
  const { axis } = chosen;
  const rows = data.groups.map(needs).sort((a, b) => a.cost[axis] - b.cost[axis] || a.cost.round - b.cost.round);
  const best = eachAxis((key) => Math.min(...rows.map((row) => row.cost[key])));
  const cell = (cost, key) => {
    if (cost[key] === Infinity) return make("td", { class: "bad" }, "not reached");
    const times = factor(cost[key], best[key]);
    const factorText = times === Infinity ? "" : ` (${times.toFixed(times < 10 ? 2 : 0)}×)`;
    return make("td", times === 1 ? { class: "best" } : {}, amount(key, cost[key]), make("small", {}, factorText));
  };
  const body = rows.map(({ group, reached, cost }) => {
    return [groupCell(group), reached, ...Object.keys(cost).map((key) => cell(cost, key))];
  });
  fillTable("reached", ["Algorithm", "seeds", ...Object.values(data.axes)], body);
  $("verdict").textContent = verdict(rows, wanted);
}

// The table in a sentence, `rows` from the best on.
function verdict(rows, wanted) {
  const { axis } = chosen;
  const few = 4;
  const [best, ...others] = rows.filter(({ cost }) => cost[axis] !== Infinity);
  const missing = rows.filter(({ cost }) => cost[axis] === Infinity).map(({ group }) => group.title);
  if (!best) return `None reached ${wanted}${target.keep ? " and kept it" : ""}.`;
  const unit = axis === "round" || axis === "samples" ? ` ${UNITS[axis]}` : "";
  let sentence = `${best.group.title} reached ${wanted} with ${amount(axis, best.cost[axis])}${unit}.`;
  const times = others.map(({ group, cost }) => {
    const needed = factor(cost[axis], best.cost[axis]);
    return `${group.title} needed ${needed.toFixed(needed < 10 ? 1 : 0)}×`;
  });
  if (others.length) sentence += ` ${times.slice(0, few).join(", ")} the ${UNITS[axis]} for the same.`;
  if (missing.length > few) sentence += ` ${missing.length} others did not reach it.`;
  else if (missing.length) sentence += ` Not reached by ${missing.join(", ")}.`;
  return sentence;
}
