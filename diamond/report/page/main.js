// Controls, and, on the live page, asking for news.

const CHARTS = {
  models: drawModels,
  curves: drawCurves,
  network: drawNetwork,
  heat: drawHeat,
  oracle: drawOracle,
  traffic: drawTraffic,
  shares: drawShares,
  sensitivity: drawSensitivity,
};

function showAll() {
  fillControls();
  showSummary();
  showAnswer();
  showTarget();
  showCurves();
  showAgents();
  showRuns();
  draw("oracle", "traffic", "sensitivity");
}

function fillControls() {
  const measures = data.measures.map(({ key, title }) => [key, title]);
  const opens = !chosen.measure;
  chosen.measure = fillSelect("measure", measures, chosen.measure);
  const isPositive = (run) => finite(valuesOf(run, chosen.measure)).every((value) => value > 0);
  if (opens && !data.runs.every(isPositive)) $("log-y").checked = chosen.logY = false;
  groupOptions($("measure"));
  answered.run = fillSelect("answered", withAnswers().map((run) => [run.id, runTitle(run)]), answeredRun()?.id);
  const groups = data.groups.map(({ title }) => [title, title]);
  chosen.relative = fillSelect("relative", [["", "nothing"], ...groups], chosen.relative);
  seen.run = fillSelect("run", detailed().map((run) => [run.id, runTitle(run)]), seen.run);
  seen.own = fillSelect("own", ownKeys(theRun()).map((key) => [key, ownTitle(key)]), seen.own);
  sweep.option = fillSelect("option", sweptOptions().map((name) => [name, name]), sweep.option);
  sweep.measure = fillSelect("swept-measure", measures, sweep.measure);
  $("sensitivity-section").hidden = !sweep.option;
  $("target-section").hidden = data.alone; // sites run together: none is better than another
}

// Put the measures under the titles of their parts.
function groupOptions(select) {
  const selected = select.value;
  for (const { key, part } of data.measures) {
    const label = part;
    const found = [...select.querySelectorAll("optgroup")].find((group) => group.label === label);
    const group = found ?? select.appendChild(make("optgroup", { label }));
    group.append([...select.options].find((option) => option.value === key));
  }
  select.value = selected;
}

function fillAxes() {
  for (const [axis, title] of Object.entries(data.axes)) {
    const radio = make("input", { type: "radio", name: "axis", value: axis });
    radio.checked = axis === chosen.axis;
    $("axis").append(make("label", { title }, radio, make("span", {}, UNITS[axis])));
    radio.addEventListener("change", () => {
      chosen.axis = axis;
      showTarget();
      showCurves();
    });
  }
}

// A control sets one thing, and the sections that depend on it are shown anew.
function listen() {
  const on = (id, set, ...shows) => {
    $(id).addEventListener("input", () => {
      set($(id));
      shows.forEach((show) => show());
    });
  };
  const aim = (value, own) => {
    if (!own || Number.isFinite(value)) Object.assign(target, { value, own });
  };
  on("answered", ({ value }) => { answered.run = value; }, showAnswer);
  on("measure", ({ value }) => { chosen.measure = value; aim(null, false); }, showTarget, showCurves);
  on("log-y", ({ checked }) => { chosen.logY = checked; }, showCurves);
  on("log-x", ({ checked }) => { chosen.logX = checked; }, showCurves);
  on("seeds", ({ value }) => { chosen.seeds = value; }, showCurves);
  on("relative", ({ value }) => { chosen.relative = value; }, showCurves);
  on("target", ({ valueAsNumber }) => aim(fromSlider(valueAsNumber / 1000), true), showTarget, showCurves);
  on("target-value", ({ valueAsNumber }) => aim(valueAsNumber, true), showTarget, showCurves);
  on("keep", ({ value }) => { target.keep = value === "keep"; }, showTarget);
  on("run", ({ value }) => Object.assign(seen, { run: value, frame: Infinity }), fillControls, showAgents);
  on("own", ({ value }) => { seen.own = value; }, showAgents);
  on("frame", ({ valueAsNumber }) => { seen.frame = valueAsNumber; }, showFrame);
  on("option", ({ value }) => { sweep.option = value; }, () => draw("sensitivity"));
  on("swept-measure", ({ value }) => { sweep.measure = value; }, () => draw("sensitivity"));
}

async function follow() {
  let tag = "";
  $("live").hidden = false;
  for (;;) {
    try {
      const answer = await fetch("data.json", { headers: { "If-None-Match": tag }, cache: "no-store" });
      if (answer.ok) {
        data = prepared(await answer.json());
        tag = answer.headers.get("ETag");
        showAll();
      } else if (answer.status !== 304) {
        throw new Error(`the server answered ${answer.status}`);
      }
      $("live").textContent = standing(data.runs);
    } catch {
      $("live").textContent = "connection lost; asking again";
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

for (const [id, builder] of Object.entries(CHARTS)) register(id, builder);
fillAxes();
listenTheme();
listen();
showAll();
if (LIVE) follow();
