// A sweep over options: the last value of a measure against one option, for each algorithm.

const sweep = { option: null, measure: "upper_loss" };

const sweptOptions = () => [...new Set(Object.values(data.swept).flat())];

function sweptPoints() {
  const { option, measure } = sweep;
  const top = ceiling(measure);
  return data.runs
    .filter((run) => data.swept[run.algorithm]?.includes(option) && run.options[option] !== undefined)
    .map((run) => ({ run, x: run.options[option], y: run.status === "diverged" ? null : last(run, measure) }))
    .map((p) => (p.y > top ? { ...p, y: null } : p));
}

function drawSensitivity() {
  const { option, measure } = sweep;
  if (!option || !measure) return null;
  const points = sweptPoints();
  const numeric = points.every((p) => typeof p.x === "number");
  const better = rises(measure) ? Math.max : Math.min;
  const worse = rises(measure) ? Math.min : Math.max;
  const edge = worse(...finite(points.map((p) => p.y)));
  const traces = [...new Set(points.map((p) => p.run.algorithm))].flatMap((name) => {
    const mine = points.filter((p) => p.run.algorithm === name);
    const group = groupOf(mine[0].run);
    const [good, bad] = [mine.filter((p) => p.y !== null), mine.filter((p) => p.y === null)];
    const settings = [...new Set(good.map((p) => p.x))].sort(numeric ? (a, b) => a - b : undefined);
    const best = settings.map((x) => better(...good.filter((p) => p.x === x).map((p) => p.y)));
    const labels = new Set(mine.map((p) => groupOf(p.run).label)); // a line over several has none of them
    const title = labels.size === 1 ? group.label : name;
    const common = { legendgroup: name, name: plain(title), mode: "markers" };
    const dots = (those, y, marker, hoverText) => ({
      ...common,
      x: those.map((p) => p.x),
      y: those.map(y),
      text: those.map((p) => plain(runTitle(p.run))),
      marker: { color: group.colour, ...marker },
      hovertemplate: `%{text}: ${hoverText}<extra></extra>`,
      showlegend: false,
    });
    return [
      { ...common, x: settings, y: best, mode: "lines", line: { color: group.colour, width: 2 }, hoverinfo: "skip" },
      dots(good, (p) => p.y, { size: 9 }, "%{y:.4~g}"),
      dots(bad, () => edge, { size: 11, symbol: "x" }, "diverged"),
    ];
  });
  const decades = (values) => values.every((v) => v > 0) && Math.max(...values) >= 8 * Math.min(...values);
  const type = (values) => (decades(values) ? "log" : "linear");
  const layout = {
    xaxis: { title: { text: plain(option) }, type: numeric ? type(points.map((p) => p.x)) : "category" },
    yaxis: { title: { text: plain(measureTitle(measure)) }, type: type(finite(points.map((p) => p.y))) },
    uirevision: [option, measure].join(),
  };
  const rows = points.map(({ run, x, y }) => [run.algorithm, run.seed, x, y, run.status]);
  const says = `Last ${measureTitle(measure)} against ${option}`;
  return { traces, layout, rows: [["algorithm", "seed", option, measure, "status"], ...rows], says };
}
