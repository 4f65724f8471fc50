// The curves: a measure against what was spent, a line and a band for each group.

const CUT = "A curve that leaves the chart above grows to more than 10,000 times the start.";
const chosen = { measure: null, axis: "round", logX: false, logY: true, seeds: "band", relative: "" };

function curveTraces(group, adjust) {
  const { measure, axis } = chosen;
  const common = { mode: "lines", legendgroup: group.title, name: plain(group.title) };
  const line = { color: group.colour, dash: group.dash, width: 2.5 };
  const xy = (points) => ({ x: points.map((p) => p.x), y: points.map((p) => p.y) });
  const hover = (title) => `${plain(title)}<br>%{x:.4~s}: %{y:.4~g}<extra></extra>`;
  const stopped = members(group).filter((run) => run.status === "diverged");
  const ends = {
    ...common,
    ...xy(adjust(stopped.flatMap((run) => curve(run, measure, axis).slice(-1)))),
    mode: "markers",
    showlegend: false,
    marker: { symbol: "x", size: 11, color: group.colour },
    hovertemplate: `${plain(group.title)} diverged<extra></extra>`,
  };
  if (chosen.seeds === "each") {
    const lines = members(group).map((run, i) => {
      const own = { showlegend: i === 0, line: { ...line, width: 1.2 }, hovertemplate: hover(runTitle(run)) };
      return { ...common, ...xy(adjust(curve(run, measure, axis))), ...own };
    });
    return [...lines, ends];
  }
  const points = adjust(aggregate(group, measure, axis));
  const upper = points.filter((p) => p.seeds > 1 && p.low !== null);
  const around = [...upper.map((p) => ({ x: p.x, y: p.high })), ...upper.map((p) => ({ x: p.x, y: p.low })).reverse()];
  const filling = { fill: "toself", fillcolor: fade(group.colour, 0.18), line: { width: 0 }, hoverinfo: "skip" };
  const band = { ...common, ...xy(around), ...filling, showlegend: false };
  return [band, { ...common, ...xy(points), line, hovertemplate: hover(group.title) }, ends];
}

// Points as they are drawn: divided by the baseline, without what a logarithm cannot show.
function adjusting(baseline) {
  const { logX, logY } = chosen;
  return (points) =>
    points
      .map((p) => {
        const unit = baseline ? interpolate(baseline, p.x) : 1;
        const value = (v) => (unit && Number.isFinite(v / unit) && (v / unit > 0 || !logY) ? v / unit : null);
        return { ...p, y: value(p.y), low: value(p.low), high: value(p.high) };
      })
      .filter((p) => p.y !== null && (p.x > 0 || !logX));
}

function drawCurves(colours) {
  const { measure, axis, logX, logY, relative } = chosen;
  if (!measure) return null;
  const base = data.groups.find((group) => group.title === relative);
  const adjust = adjusting(base && aggregate(base, measure, axis));
  const traces = data.groups.flatMap((group) => curveTraces(group, adjust));
  const title = measureTitle(measure) + (base ? ` ÷ that of ${base.title}` : "");
  const type = (log) => (log ? "log" : "linear");
  const layout = {
    xaxis: { title: { text: data.axes[axis] }, type: type(logX) },
    yaxis: { title: { text: plain(title) }, type: type(logY), ...(base ? {} : cut(traces)) },
    shapes: base ? [] : targetLine(colours),
    uirevision: [measure, axis, logX, logY, relative].join(),
  };
  if (!logX) layout.xaxis.exponentformat = "SI";
  if (axis === "bytes") Object.assign(layout.xaxis, { tickformat: "~s", ticksuffix: "B" });
  const keys = [...Object.keys(data.axes), measure];
  const rows = data.runs.flatMap((run) =>
    valuesOf(run, "round").map((_, i) => [groupOf(run).title, run.seed, ...keys.map((key) => valuesOf(run, key)[i])]),
  );
  const says = `${title} against ${data.axes[axis]}, ${data.groups.length} curves`;
  // On a phone the legend has a line for each curve, which must not come out of the chart.
  const height = innerWidth < 768 ? 280 + 20 * data.groups.length : undefined;
  return { traces, layout, rows: [["algorithm", "seed", ...keys], ...rows], says, height };
}

// The range of the axis if something lies beyond the ceiling.
function cut(traces) {
  const drawn = traces.flatMap((trace) => trace.y);
  if (!drawn.some((y) => y > ceiling(chosen.measure))) return {};
  const top = ceiling(chosen.measure) / (chosen.logY ? 1 : 5e3);
  const range = [Math.min(...drawn), top];
  return { range: chosen.logY ? range.map(Math.log10) : range };
}

function targetLine(colours) {
  if (target.value === null || (chosen.logY && target.value <= 0)) return [];
  const line = { color: colours.faint, width: 1.2, dash: "dot" };
  return [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: target.value, y1: target.value, line }];
}

function showCurves() {
  const top = ceiling(chosen.measure);
  const seeds = Math.max(...data.groups.map((group) => members(group).length));
  const notes = [
    [seeds > 1 && chosen.seeds === "band", "Lines are medians over the seeds, bands their whole range."],
    [data.runs.some((run) => run.status === "diverged"), "× marks the last evaluation of a run that diverged."],
    [data.runs.some((run) => valuesOf(run, chosen.measure).some((v) => v > top)), CUT],
    [data.thinned > 1, `To stay small, the page holds one evaluation of ${data.thinned}; metrics.jsonl has all.`],
  ];
  const shownNotes = notes.filter(([holds]) => holds).map(([, note]) => note);
  $("curves-note").textContent = shownNotes.join(" ");
  draw("curves");
}
