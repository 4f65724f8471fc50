// Performance profiles: steps up, a line a method.

const WIDEST = 1e4; // factors beyond are not drawn

function drawProfile() {
  const [cases, methods] = [shownCases(), ordered()];
  const found = factors(matrix(cases, methods), methods.length);
  const drawn = (mine) => mine.filter((v) => v <= WIDEST);
  const last = 1.1 * Math.max(2, ...drawn(found.flat()));
  const steps = found.map((mine) => [...new Set([1, ...drawn(mine), last])].sort((a, b) => a - b));
  const traces = methods.map(({ name, colour, mark }, j) => ({
    name: plain(name),
    x: steps[j],
    y: steps[j].map((factor) => shareWithin(found[j], factor)),
    mode: "lines+markers",
    line: { shape: "hv", color: colour, width: 2.5 },
    marker: { symbol: mark, size: 7, color: colour },
    hovertemplate: `${plain(name)}: %{y:.0%} within %{x:.3~g}×<extra></extra>`,
  }));
  const layout = {
    xaxis: { title: { text: `factor to the fewest ${unit()}` }, type: "log", ticksuffix: "×", range: [-0.01, Math.log10(last)], ...ticks(last) },
    yaxis: { title: { text: "share of cases" }, tickformat: ".0%", range: [-0.03, 1.04] },
    legend,
  };
  const rows = methods.flatMap(({ name }, j) => steps[j].map((factor, i) => [name, factor, traces[j].y[i]]));
  const says = `Share of ${count(cases.length, "case")} solved within a factor of the best, ${count(methods.length, "method")}`;
  return { traces, layout, rows: [["method", "factor", "share"], ...rows], says, height: legendHeight(methods.length) };
}

// Few and round ones, also where the axis is less than a decade long.
function ticks(last) {
  const near = [1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100].filter((v) => v <= last);
  return last > 100 ? { dtick: 1 } : { tickmode: "array", tickvals: near.length > 8 ? near.filter((_, i) => i % 2 === 0) : near };
}

// Legends lie above their charts, and take lines of them where there are many methods.
const legend = { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11 } };

function legendHeight(entries) {
  const perLine = Math.max(1, Math.floor(Math.min(innerWidth - 100, 1150) / 145));
  return 340 + 19 * Math.ceil(entries / perLine);
}
