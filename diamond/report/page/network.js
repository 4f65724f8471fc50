// One run seen from its agents: the drawn network, agents over the rounds, and their table.

const seen = { run: null, own: "consensus", frame: Infinity }; // frame: index of an evaluation
const CROWD = 60; // agents beyond which edges and bytes are not told one by one
const OWN = {
  consensus: "consensus error ‖xᵢ − x̄‖²",
  lower_error: "lower error ‖yᵢ* − yᵢ‖²",
  upper_loss: "upper loss fᵢ(x̄, yᵢ*)",
  local_loss: "local loss fᵢ(xᵢ, yᵢ)",
};

// Of many runs, the page has only some in detail.
const detailed = () => data.runs.filter((run) => run.agents);
const theRun = () => detailed().find((run) => run.id === seen.run) ?? detailed()[0];
const networkOf = (run) => data.networks[run.network];
const frameOf = (run) => Math.max(0, Math.min(seen.frame, run.frames.length - 1));
const ownKeys = (run) => Object.keys(run.agents);
const ownTitle = (key) => OWN[key] ?? key;

function agentBytes(run, agent) {
  const mine = run.traffic.filter(([i, j]) => i === agent || j === agent);
  return run.traffic.length ? mine.reduce((sum, [, , bytes]) => sum + bytes, 0) : null;
}

// Edges as a few traces, one for each width: the thicker, the more load. That is the bytes sent, or
// on a network with links the time that sending them takes.
function edgeTraces(run, network, colours) {
  const { edges, positions, agents } = network;
  const bytes = new Map(run.traffic.flatMap(([i, j, sent]) => [[`${i}-${j}`, sent], [`${j}-${i}`, sent]]));
  const sentOver = (edge) => bytes.get(edge.join("-")) ?? 0;
  const load = (edge) => (network.links ? busy(linkOf(network, edge), sentOver(edge)) : sentOver(edge));
  const most = Math.max(...edges.map(load)) || 1;
  const widths = new Map();
  for (const edge of edges) {
    const width = 1 + Math.round((4 * load(edge)) / most);
    widths.set(width, [...(widths.get(width) ?? []), edge]);
  }
  const crowded = agents > CROWD;
  const lines = [...widths].map(([width, those]) => ({
    x: those.flatMap(([i, j]) => [positions[i][0], positions[j][0], null]),
    y: those.flatMap(([i, j]) => [positions[i][1], positions[j][1], null]),
    mode: "lines",
    line: { color: colours.edge, width: crowded ? 0.3 * width : width },
    hoverinfo: "skip",
    showlegend: false,
  }));
  const middle = (k) => edges.map(([i, j]) => (positions[i][k] + positions[j][k]) / 2);
  const onLink = (edge) => (network.links ? linkText(linkOf(network, edge), sentOver(edge)) : "");
  const losses = lossTexts(run);
  const edgeText = (edge) =>
    run.traffic.length ? amount("bytes", sentOver(edge)) + onLink(edge) + (losses.get(edge.join("-")) ?? "") : "bytes are known at the end";
  const middles = {
    x: middle(0),
    y: middle(1),
    mode: "markers",
    marker: { size: 12, opacity: 0 },
    text: edges.map((edge) => `edge ${edge.join("–")}: ${edgeText(edge)}`),
    hovertemplate: "%{text}<extra></extra>",
    showlegend: false,
  };
  return crowded ? lines : [...lines, middles];
}

// A site is called by its name, other agents by their numbers.
const agentName = (network, i) => network.sites?.[i] ?? String(i);
const agentTitle = (network, i) => network.sites?.[i] ?? `agent ${i}`;

function drawNetwork(colours) {
  const run = theRun();
  const network = networkOf(run);
  const table = run.agents[seen.own] ?? [];
  const values = network.positions.map((_, i) => table[frameOf(run)]?.[i]);
  const scale = colouring(table.flat());
  const few = network.agents <= 30;
  const nodes = {
    x: network.positions.map(([x]) => x),
    y: network.positions.map(([, y]) => y),
    mode: few ? "markers+text" : "markers",
    text: values.map((_, i) => agentName(network, i)),
    ...(network.sites && { textposition: "bottom center" }),
    textfont: { color: network.sites ? colours.ink : values.map(scale.ink), size: 13 },
    marker: {
      size: few ? 30 : Math.max(6, 160 / Math.sqrt(network.agents)),
      color: values.map(scale.colour),
      line: { color: colours.paper, width: few ? 2 : 0.5 },
    },
    customdata: values.map(format),
    hovertemplate: `${network.sites ? "" : "agent "}%{text}: %{customdata}<extra>${plain(ownTitle(seen.own))}</extra>`,
    showlegend: false,
  };
  const hidden = { visible: false, range: [-1.2, 1.2] };
  const axes = { xaxis: hidden, yaxis: { ...hidden, scaleanchor: "x" } };
  const layout = { ...axes, margin: { l: 0, r: 0, t: 0, b: 0 }, uirevision: run.id };
  const says = `${network.name}, ${network.agents} agents and ${network.edges.length} edges, by ${ownTitle(seen.own)}`;
  const row = (value, i) => [agentName(network, i), ...network.positions[i], run.frames[frameOf(run)], value, agentBytes(run, i)];
  const rows = [["agent", "x", "y", "round", seen.own, "bytes"], ...values.map(row)];
  return { traces: [...edgeTraces(run, network, colours), nodes, ...scale.bars], layout, rows, says };
}

// Plotly's basic bundle has no heat map: cells are bars, agent i's from i - 1/2 to i + 1/2.
function drawHeat(colours) {
  const run = theRun();
  const network = networkOf(run);
  const { agents } = network;
  const cells = (run.agents[seen.own] ?? []).flatMap((row, k) => row.map((v, i) => ({ k, i, v })));
  if (!cells.length) return null;
  const scale = colouring(cells.map((cell) => cell.v));
  const bars = {
    type: "bar",
    x: cells.map((cell) => cell.k),
    y: cells.map(() => 1),
    base: cells.map((cell) => cell.i - 0.5),
    width: 1,
    marker: { color: cells.map((cell) => scale.colour(cell.v)), line: { width: 0 } },
    customdata: cells.map((cell) => [agentTitle(network, cell.i), run.frames[cell.k], format(cell.v)]),
    hovertemplate: "%{customdata[0]}, round %{customdata[1]}: %{customdata[2]}<extra></extra>",
    showlegend: false,
  };
  const step = Math.ceil(run.frames.length / 8);
  const ticks = run.frames.map((_, k) => k).filter((k) => k % step === 0);
  const named = { tickvals: ticks, ticktext: ticks.map((k) => String(run.frames[k])) };
  const layout = {
    bargap: 0,
    barmode: "overlay",
    xaxis: { title: { text: "round" }, ...named, range: [-0.5, run.frames.length - 0.5], showgrid: false },
    yaxis: { title: { text: "agent" }, range: [agents - 0.5, -0.5], showgrid: false },
    shapes: frameMark(run, colours),
    uirevision: run.id,
  };
  if (agents <= 20) layout.yaxis.dtick = 1;
  if (network.sites && agents <= CROWD) {
    Object.assign(layout.yaxis, { tickvals: network.sites.map((_, i) => i), ticktext: network.sites, automargin: true });
  }
  const says = `${ownTitle(seen.own)} of ${agents} agents at ${run.frames.length} evaluations`;
  const rows = [["round", "agent", seen.own], ...cells.map(({ k, i, v }) => [run.frames[k], network.sites?.[i] ?? i, v])];
  return { traces: [bars, ...scale.bars], layout, rows, says };
}

// What shows in the heat map which evaluation the network is drawn at.
function frameMark(run, colours) {
  const here = { x0: frameOf(run) - 0.5, x1: frameOf(run) + 0.5, y0: -0.5, y1: networkOf(run).agents - 0.5 };
  return [{ type: "rect", ...here, line: { color: colours.bad, width: 2 } }];
}

function showFrame() {
  const run = theRun();
  const network = networkOf(run);
  const round = run.frames[frameOf(run)] ?? 0;
  $("frame").max = Math.max(0, run.frames.length - 1);
  $("frame").value = frameOf(run);
  $("frame-label").textContent = `Round ${round} of ${run.rounds}`;
  $("frame").setAttribute("aria-valuetext", `round ${round}`);
  const held = detailed().length;
  const some = held < data.runs.length ? ` The page holds the agents of ${count(held, "run")}.` : "";
  $("network-note").textContent =
    `${network.name}: ${network.agents} agents, ${network.edges.length} edges, ${network.mixing} mixing, ` +
    `λ = ${format(network.lam)}. Colour: ${ownTitle(seen.own)}, one scale for all rounds. ` +
    `Edges: the thicker, the ${network.links ? "longer sending took" : "more bytes"}.${lostInAll(run)}${some}`;
  draw("network");
  if ($("heat-chart").data) Plotly.relayout("heat-chart", { shapes: frameMark(run, palette(theme())) });
}

function showAgents() {
  const run = theRun();
  const network = networkOf(run);
  const { positions, edges } = network;
  const { rows = {}, labels } = data.problems[run.problem];
  const columns = [
    [network.sites ? "site" : "agent", (i) => agentName(network, i)],
    ["peers", (i) => String(edges.filter((edge) => edge.includes(i)).length)],
    ...Object.keys(rows).map((part) => [`${part} rows`, (i) => format(rows[part][i])]),
    ...(labels ? [["labels", (i) => histogram(labels[i])]] : []),
    ...ownKeys(run).map((key) => [key.replaceAll("_", " "), (i) => format(run.agents[key].at(-1)?.[i])]),
    ["samples", (i) => amount("samples", run.costs?.samples?.[i])],
    ["bytes", (i) => amount("bytes", agentBytes(run, i))],
  ];
  const body = positions.map((_, i) => columns.map(([, cell]) => cell(i)));
  fillTable("agents", columns.map(([name]) => name), body);
  showLinks(run, network);
  draw("heat", "shares");
  showFrame();
}
