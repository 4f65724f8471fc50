// Shared-case ranks: a dot a method on the axis of ranks, and above them the critical difference and
// bars that join what does not differ by it.

function standing() {
  const [cases, methods] = [shownCases(), ordered()];
  const { n, average, difference } = rankings(matrix(cases, methods), methods.length);
  const sorted = methods.map((method, j) => ({ method, rank: average[j] }));
  return { cases, n, sorted, difference, joined: Number.isNaN(difference) ? [] : cliques(average, difference) };
}

function drawRanks(colours) {
  const { n, sorted, difference, joined } = standing();
  if (Number.isNaN(difference)) return null;
  const k = sorted.length;
  const bar = (from, to, row, colour, hoverText) => ({
    x: [from, to],
    y: [row, row],
    mode: "lines+markers",
    line: { color: colour, width: 7 },
    marker: { symbol: "line-ns", size: 12, color: colour, line: { color: colour, width: 2 } },
    hovertemplate: `${plain(hoverText)}<extra></extra>`,
    showlegend: false,
  });
  const names = (i, j) => sorted.slice(i, j + 1).map(({ method }) => method.name).join(", ");
  const bars = joined.map(([i, j], row) => {
    return bar(sorted[i].rank, sorted[j].rank, row + 1, colours.edge, `no difference shown: ${names(i, j)}`);
  });
  const above = joined.length + 1;
  const length = Math.min(difference, k - 1);
  const critical = bar(1, 1 + length, 0, colours.bad, `critical difference ${difference.toFixed(2)}`);
  Object.assign(critical, { mode: "lines+markers+text", text: ["", difference.toFixed(2)], textposition: "middle right" });
  const dots = {
    x: sorted.map(({ rank }) => rank),
    y: sorted.map((_, i) => above + i),
    mode: "markers+text",
    text: sorted.map(({ rank }) => rank.toFixed(2)),
    textposition: sorted.map(({ rank }) => (rank > 0.7 * k ? "middle left" : "middle right")),
    marker: { size: 12, color: sorted.map(({ method }) => method.colour), symbol: sorted.map(({ method }) => method.mark) },
    hovertemplate: "%{text}<extra></extra>",
    showlegend: false,
  };
  const stems = sorted.map(({ rank }, i) => {
    return { type: "line", x0: rank, x1: rank, y0: 0.5, y1: above + i, line: { color: colours.grid, width: 1 }, layer: "below" };
  });
  const titles = ["difference", ...joined.map(() => ""), ...sorted.map(({ method }) => plain(method.name))];
  const layout = {
    xaxis: { title: { text: `shared-case rank over ${count(n, "case")}` }, range: [0.8, k + 0.45], dtick: k > 12 ? 2 : 1, tick0: 1 },
    yaxis: { range: [above + k - 0.4, -0.6], tickvals: titles.map((_, i) => i), ticktext: titles, showgrid: false, zeroline: false },
    shapes: stems,
  };
  const rows = [["method", "shared-case rank"], ...sorted.map(({ method, rank }) => [method.name, rank])];
  const says = `Shared-case ranks: ${sorted.map(({ method, rank }) => `${method.name} ${rank.toFixed(2)}`).join(", ")}`;
  return { traces: [critical, ...bars, dots], layout, rows, says, height: 110 + 26 * (above + k) };
}

function showRanks() {
  $("ranks-verdict").textContent = ranksVerdict();
  draw("ranks");
}

function ranksVerdict() {
  const { cases, n, sorted, difference, joined } = standing();
  const k = sorted.length;
  if (k < 2) return "There is nothing to rank: one method is left.";
  if (!n) return "There are no ranks: no case was met by all these methods; choose one lower level or oracle.";
  const few = n < cases.length ? ` over the ${n} of ${cases.length} cases that all of them met` : ` over ${count(n, "case")}`;
  const differenceText = `Critical difference ${difference.toFixed(2)} of ${count(k, "method")}${few}.`;
  if (difference >= k - 1) {
    return `${differenceText} Ranks of ${k} differ by ${k - 1} at most: with so few cases nothing can be told apart, and the order is of these cases alone.`;
  }
  if (joined.some(([i, j]) => i === 0 && j === k - 1)) return `${differenceText} No two of them differ by that much.`;
  const like = joined.find(([i]) => i === 0);
  const end = like ? like[1] : 0;
  const worse = sorted.slice(end + 1).map(({ method }) => method.name);
  const caution = n < 10 ? " Few cases: take it as a description of these, not as a law." : "";
  return `${differenceText} ${sorted[0].method.name} ranks first, and differs from ${worse.join(", ")}.${caution}`;
}
