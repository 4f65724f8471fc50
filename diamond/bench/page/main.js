// Controls, and what is shown anew when one of them is set.

const CHARTS = { profile: drawProfile, ranks: drawRanks, curves: drawCurves };

function showAll() {
  const any = rowsOf("tuned").length > 0;
  $("compared").hidden = !any;
  $("alerts").textContent = any ? "" : "No method met such a case: choose fewer of the filters.";
  if (!any) return;
  const cases = shownCases().map(({ name, title }) => [name, name === title ? name : `${name}: ${title}`]);
  state.case = fillSelect("case", cases, state.case);
  showCosts();
  draw("profile");
  showRanks();
  showCurves();
  showConstants();
  showUntuned();
  showFailures();
}

// A filter by what there is; one that leaves no choice is not shown.
function fillFilter(id, all, values) {
  const known = [...new Set(values)].sort();
  fillSelect(id, [[ANY, all], ...known.map((value) => [value, value])], ANY);
  $(id).parentElement.hidden = known.length < 2;
}

function fillControls() {
  fillSelect("cost", Object.entries(data.costs), state.cost);
  fillSelect("tau", data.taus.map((tau) => [tau, `τ = ${tau}: ${100 * tau} % of the way left`]), state.tau);
  fillSelect("kind", [["tuned", "tuned"], ["untuned", "without tuning"]], state.kind);
  $("range").checked = state.range;
  fillFilter("level", "all", data.cases.map((one) => one.lower_level));
  fillFilter("oracle", "all", data.methods.map((one) => one.oracle));
  fillFilter("topology", "all", data.cases.map((one) => one.topology));
}

function listen() {
  for (const name of ["cost", "tau", "kind", "level", "oracle", "topology"]) {
    $(name).addEventListener("input", () => {
      state[name] = $(name).value;
      showAll();
    });
  }
  const on = (id, set) => $(id).addEventListener("input", () => { set($(id)); showCurves(); });
  on("case", ({ value }) => { state.case = value; });
  on("range", ({ checked }) => { state.range = checked; });
  on("both", ({ checked }) => { state.both = checked; });
  on("log-x", ({ checked }) => { state.logX = checked; });
}

for (const [id, builder] of Object.entries(CHARTS)) register(id, builder);
fillControls();
listenTheme();
listen();
showAbout();
showAll();
