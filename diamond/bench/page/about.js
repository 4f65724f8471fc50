// What was done, in a few sentences and tables that do not depend on choices.

const GLYPHS = { circle: "●", square: "■", diamond: "◆", "triangle-up": "▲", cross: "✚", star: "★", hexagon: "⬢" };

const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

function methodCell(method) {
  const mark = make("span", { class: "mark", "aria-hidden": "true" }, GLYPHS[method.mark]);
  mark.style.color = method.colour;
  return make("th", { scope: "row" }, mark, `\u00a0${method.name}`);
}

const span = (seeds) => (seeds.length > 1 ? `${seeds[0]} to ${seeds.at(-1)}` : `${seeds[0]}`);

function showAbout() {
  const { cases, methods, settings, seeds, tuning_seeds: tuning } = data;
  $("summary").textContent =
    `${count(methods.length, "method")} on ${count(cases.length, "case")}, ${count(seeds.length, "seed")} each: ` +
    `${count(data.constants.length, "pair")}, ${count(data.runs, "run")}. Version ${data.version}.`;
  const rules = [
    `Equal budgets: on every case every method is tuned by ${count(settings, "setting")}, drawn by one rule around the ` +
      "numbers that it finds for itself: each has a quarter of the rounds, the best quarter of them all rounds from " +
      `${count(tuning.length, "seed")}; the best has the lowest mean upper loss in the last fifth of its rounds.`,
    `Other seeds: what was found best, and the method that chooses its own numbers, run from ${count(seeds.length, "seed")} ` +
      `(${span(seeds)}) that no trial has seen (${span(tuning)}), and these runs alone are compared; ` +
      "without tuning from five of them at most.",
    "The target of a case is lowest + τ (start − lowest): start is the median upper loss at the beginning, lowest that " +
      "of any run of any method on it. A cost is what was spent by the first evaluation at or below the target.",
  ];
  $("rules").replaceChildren(...rules.map((rule) => make("li", {}, rule)));
  const { processor, device, processes, jax } = data.machine;
  const entries = { processor, device, "processes side by side": processes, JAX: jax, diamond: data.version };
  $("machine").replaceChildren(definitions(Object.entries(entries)));
  const facts = ["lower_level", "topology", "rounds", "batch", "start", "lowest"];
  const caseHead = ["Case", "in words", "lower level", "network", "rounds", "batch", "start", "lowest"];
  const caseRow = (one) => [make("th", { scope: "row" }, one.name), one.title, ...facts.map((key) => format(one[key]))];
  fillTable("cases", caseHead, cases.map(caseRow));
  const parts = ["solves", "oracle", "estimator", "moves", "networks", "reference"];
  fillTable("methods", ["Method", ...parts], methods.map((one) => [methodCell(one), ...parts.map((key) => one[key] ?? "")]));
  $("footer").textContent = "Numbers as files: results.json and costs.csv beside this page.";
}
