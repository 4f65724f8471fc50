// Curves of one case: what is left of the way against the cost; tuned solid, untuned dashed.

const CEILING = 10; // times the way at the start; what is beyond is off the chart

const curvesOf = () => data.curves.filter((one) => one.case === state.case && passes(one));

function curveTraces(method, found, kind) {
  const spent = found.cost[state.cost];
  if (!spent) return [];
  const points = spent.map((x, i) => ({ x, y: found.middle[i], low: found.low[i], high: found.high[i] }));
  const drawn = points.filter(({ x, y }) => x !== null && y > 0 && (x > 0 || !state.logX));
  const inside = points.filter(({ x, high }) => x !== null && high > 0 && (x > 0 || !state.logX));
  const floor = Math.min(...finite(found.low).filter((v) => v > 0), ...finite(found.high).filter((v) => v > 0));
  const around = [
    ...inside.map(({ x, high }) => ({ x, y: high })),
    ...inside.map(({ x, low }) => ({ x, y: Math.max(low, floor) })).reverse(),
  ];
  const title = kind === "tuned" ? method.name : `${method.name}, without tuning`;
  const common = { name: plain(title), legendgroup: method.name };
  const xy = (those) => ({ x: those.map((p) => p.x), y: those.map((p) => p.y) });
  const line = { color: method.colour, dash: kind === "tuned" ? "solid" : "dash", width: 2.5 };
  const filling = { mode: "lines", fill: "toself", fillcolor: fade(method.colour, 0.15), line: { width: 0 }, hoverinfo: "skip" };
  const lost = found.lost.filter(({ gap }) => gap > 0).map(({ gap, cost }) => ({ x: cost[state.cost], y: gap }));
  const crosses = { mode: "markers", marker: { symbol: "x", size: 11, color: method.colour }, showlegend: false };
  return [
    ...(state.range ? [{ ...common, ...xy(around), ...filling, showlegend: false }] : []),
    {
      ...common,
      ...xy(drawn),
      mode: "lines+markers",
      line,
      showlegend: kind === "tuned" || !state.both,
      marker: { symbol: method.mark, size: 6, color: method.colour },
      hovertemplate: `${plain(title)}<br>%{x:.4~s}: %{y:.3~g}<extra></extra>`,
    },
    { ...common, ...xy(lost), ...crosses, hovertemplate: `${plain(title)} diverged<extra></extra>` },
  ];
}

function drawCurves(colours) {
  const found = curvesOf();
  const kinds = state.both ? ["tuned", "untuned"] : [state.kind];
  const traces = found.flatMap((one) =>
    kinds.flatMap((kind) => curveTraces(methodOf.get(one.method), one[kind], kind)),
  );
  if (!traces.length) return null;
  const values = finite(traces.flatMap(({ y }) => y)).filter((v) => v > 0);
  const top = Math.min(CEILING, Math.max(...values));
  const xaxis = { title: { text: data.costs[state.cost] }, type: state.logX ? "log" : "linear", exponentformat: "SI" };
  if (state.cost === "bytes") Object.assign(xaxis, { tickformat: "~s", ticksuffix: "B" });
  const tau = Number(state.tau);
  const layout = {
    xaxis,
    yaxis: { title: { text: "what is left of the way" }, type: "log", range: [Math.min(...values), top].map((v, i) => Math.log10(v) + (i ? 0.1 : -0.1)) },
    legend,
    shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: tau, y1: tau, line: { color: colours.faint, width: 1.2, dash: "dot" } }],
  };
  const rows = found.flatMap((one) =>
    kinds.flatMap((kind) => {
      const { cost, middle, low, high } = one[kind];
      return (cost[state.cost] ?? []).map((x, i) => [one.method, kind, x, middle[i], low[i], high[i]]);
    }),
  );
  const says = `What is left of the way on ${state.case} against ${data.costs[state.cost]}, ${count(found.length, "method")}`;
  const head = ["method", "numbers", state.cost, "median", "smallest", "largest"];
  return { traces, layout, rows: [head, ...rows], says, height: legendHeight(found.length) };
}

function showCurves() {
  const one = caseOf.get(state.case);
  const counted = curvesOf().some(({ tuned }) => tuned.cost[state.cost]);
  $("curves-note").textContent = counted
    ? `${one.title}. What is left is (loss − lowest) / (start − lowest), start ${format(one.start)}, lowest ${format(one.lowest)}; ` +
      `medians over the seeds${state.range ? " and their range" : ""}. A run that diverged, marked × where it was last seen, counts as infinitely ` +
      `far from then on. The dotted line is the target, τ = ${state.tau}.`
    : `Of ${one.title}, ${unit()} were not counted.`;
  draw("curves");
}
