// What the runs spent: oracle calls and bytes.

const ORACLES = {
  gradients: { name: "gradients", marker: { color: "#0072B2" } },
  hvps: { name: "Hessian-vector products", marker: { color: "#E69F00" } },
  jvps: { name: "cross Jacobian products", marker: { color: "#009E73" } },
};

const spentBy = (group, key) => median(finite(members(group).map((run) => last(run, key))));

// Bars of all groups, one trace a kind of cost.
function groupBars(traces, keys, title, says) {
  const layout = {
    barmode: "stack",
    margin: { l: 110, r: 16, t: 12, b: 48 },
    xaxis: { title: { text: title }, tickformat: "~s" },
    yaxis: { autorange: "reversed", type: "category", dtick: 1, tickfont: { size: 11 } },
  };
  const y = data.groups.map((group) => plain(group.title).replace(" · ", "<br>"));
  const rows = data.groups.map((group) => [group.title, ...keys.map((key) => spentBy(group, key))]);
  return {
    traces: traces.map((trace) => ({ type: "bar", orientation: "h", y, ...trace })),
    layout,
    rows: [["algorithm", ...keys], ...rows],
    says,
    height: 130 + 34 * data.groups.length + 24 * Math.max(0, traces.length - 1) * (innerWidth < 700),
  };
}

function drawOracle() {
  const keys = Object.keys(ORACLES).filter((key) => data.runs.some((run) => run.history[key]));
  if (!keys.length) return null;
  const traces = keys.map((key) => ({
    ...ORACLES[key],
    x: data.groups.map((group) => spentBy(group, key)),
    hovertemplate: `%{y}: %{x:.4~s} ${ORACLES[key].name}<extra></extra>`,
  }));
  return groupBars(traces, keys, "calls per agent, in rows", "Oracle calls of each algorithm, by kind");
}

function drawTraffic() {
  const x = data.groups.map((group) => spentBy(group, "bytes"));
  if (!finite(x).length) return null;
  const marker = { color: data.groups.map((group) => group.colour) };
  const bars = { x, marker, hovertemplate: "%{y}: %{x:.4~s}B<extra></extra>", showlegend: false };
  const built = groupBars([bars], ["bytes"], data.axes.bytes, "Bytes sent by each algorithm");
  built.layout.xaxis.ticksuffix = "B";
  return built;
}

// The bytes of the chosen run by agent, split by the neighbour at the other end.
function drawShares(colours) {
  const run = theRun();
  const network = networkOf(run);
  const { agents } = network;
  if (!run.traffic.length || agents > CROWD) return null;
  const both = run.traffic.flatMap(([i, j, bytes]) => [[i, j, bytes], [j, i, bytes]]);
  both.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const bars = {
    type: "bar",
    x: both.map(([i]) => (network.sites ? agentName(network, i) : i)),
    y: both.map(([, , bytes]) => bytes),
    marker: { color: groupOf(run).colour, line: { color: colours.paper, width: 1 } },
    customdata: both.map(([i, j]) => `${agentTitle(network, i)} with ${agentTitle(network, j)}`),
    hovertemplate: "%{customdata}: %{y:.4~s}B<extra></extra>",
    showlegend: false,
  };
  const layout = {
    barmode: "stack",
    xaxis: { title: { text: "agent of the run chosen below" }, ...(agents <= 30 && !network.sites && { dtick: 1 }) },
    yaxis: { title: { text: "bytes by neighbour" }, tickformat: "~s", ticksuffix: "B" },
  };
  const says = `Bytes of each agent with each neighbour, ${runTitle(run)}`;
  return { traces: [bars], layout, rows: [["agent", "neighbour", "bytes"], ...both.map(([i, j, bytes]) => [agentName(network, i), agentName(network, j), bytes])], says };
}
