// All runs with their status, and what is needed to repeat each.

const STATUS = { finished: "good", interrupted: "bad", diverged: "bad" };
const CONSTANTS = { lipschitz: "L_g (lipschitz)", mu: "μ_g (mu)" };

const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

function showSummary() {
  const networks = data.networks.map(({ name, agents, lam }) => `${name} (${agents} agents, λ = ${format(lam)})`);
  const problems = [...new Set(data.problems.map((problem) => problem.name))];
  $("summary").textContent =
    `${count(data.runs.length, "run")}, ${count(data.groups.length, "curve")}: ` +
    `${problems.join(", ")} on ${networks.join("; ")}`;
  const words = { diverged: "diverged", interrupted: "stopped before the end" };
  if (!LIVE) words.running = "unfinished when this was written";
  const alerts = Object.entries(words).map(([status, text]) => {
    const those = data.runs.filter((run) => run.status === status);
    return those.length ? `${count(those.length, "run")} ${text}: ${those.map(runTitle).join("; ")}.` : "";
  });
  $("alerts").textContent = alerts.filter(Boolean).join(" ");
  const versions = [...new Set(data.machines.map((machine) => machine.versions?.diamond).filter(Boolean))];
  $("footer").textContent =
    `Runs made by diamond ${versions.join(", ")}; all numbers are in their metrics.jsonl. Charts: plotly.js (MIT).`;
}

function showRuns() {
  const known = new Set(data.measures.map(({ key }) => key));
  const measures = known.has("metric") ? ["upper_loss", "metric"] : [...known].slice(0, 2);
  const named = measures.map((key) => key.replaceAll("_", " "));
  const spent = Object.keys(data.axes).filter((axis) => axis !== "round");
  const head = ["Run", "status", "round", ...named, ...spent.map((axis) => UNITS[axis]), "compiling", "digest"];
  const cells = (run) => [
    groupCell(groupOf(run), `, seed ${run.seed}`),
    make("td", { class: STATUS[run.status] ?? "" }, run.status),
    `${last(run, "round") ?? 0} of ${run.rounds}`,
    ...measures.map((key) => format(last(run, key))),
    ...spent.map((axis) => amount(axis, last(run, axis))),
    amount("seconds", run.compile_seconds),
    (run.digest ?? "–").slice(0, 8),
  ];
  fillTable("runs", head, data.runs.map(cells));
  const open = new Set([...document.querySelectorAll("details[open]")].map((box) => box.dataset.run));
  $("configurations").replaceChildren(...data.runs.map(configuration));
  for (const box of document.querySelectorAll("details")) box.open = open.has(box.dataset.run);
}

function configuration(run) {
  const network = networkOf(run);
  const problem = data.problems[run.problem];
  const { device, platform, precision, versions } = data.machines[run.machine];
  const named = (options) => Object.entries(options ?? {}).map(([name, value]) => [name, format(value)]);
  const constants = named(run.resolved).map(([name, value]) => [CONSTANTS[name] ?? name, value]);
  const facts = [
    ["status", run.message ? `${run.status}: ${run.message}` : run.status],
    ["started", run.started],
    ["finished", run.finished],
    ["problem", `${problem.name}: ${problem.agents} agents, x of ${problem.x_size}, y of ${problem.y_size} numbers`],
    ...(problem.notes ?? []).map((note) => ["rows", note]),
    ["network", `${network.name}, ${network.mixing} mixing`],
    ["rounds", `${run.rounds}, measured every ${run.every}`],
    ["mini-batch", `${run.batch} rows, sampling by ${run.sampling}`],
    ["privacy", run.privacy && `epsilon ${format(run.privacy.spent)} of ${format(run.privacy.epsilon)}, ` +
      `delta ${format(run.privacy.delta)}, noise multiplier ${format(run.privacy.noise_multiplier)}`],
    ["messages", run.messages?.toLocaleString("en")],
    ["device", [device, platform, precision].filter(Boolean).join(", ")],
    ["versions", named(versions).flat().join(" ")],
    ["digest of the trajectory", run.digest],
  ];
  const parts = [
    ["Constants", definitions([["λ of the network", format(network.lam)], ...constants])],
    ["Options", definitions(named(run.options))],
    ["To reproduce", run.command && copyable(run.command)],
    ["config.toml", run.config && make("pre", { tabindex: "0" }, run.config)],
  ];
  const shown = parts.filter(([, part]) => part).flatMap(([title, part]) => [make("h3", {}, title), part]);
  const title = make("summary", {}, `${runTitle(run)} — ${run.name}`);
  return make("details", { "data-run": run.id }, title, definitions(facts), ...shown);
}
