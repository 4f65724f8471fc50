// What a run found: sentences, tables, and the models of the agents where these differ.

const answered = { run: null };
const MOST_LINES = 60; // of the chart of models
const AGENT_COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C7A00", "#7F7F7F"];

const withAnswers = () => data.runs.filter((run) => run.answer);
const answeredRun = () => withAnswers().find((run) => run.id === answered.run) ?? bestRun();

// The run with the smallest loss.
function bestRun() {
  const lossOf = (run) => Math.min(...finite([...valuesOf(run, "upper_loss"), ...valuesOf(run, "local_loss")]));
  return withAnswers().reduce((best, run) => (lossOf(run) < lossOf(best) ? run : best), withAnswers()[0]);
}

function showAnswer() {
  const run = answeredRun();
  $("answer").hidden = !run;
  if (!run) return;
  $("answered").parentElement.hidden = withAnswers().length < 2;
  $("answer-text").replaceChildren(...run.answer.sentences.map((sentence) => make("p", {}, sentence)));
  const shown = ({ title, cells: [head, ...rows] }) => {
    const table = make("table", {}, ...tableParts(head, rows));
    const box = make("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": title }, table);
    const chart = title === run.answer.models.title ? [$("models")] : [];
    return [make("h3", {}, title), box, ...chart];
  };
  $("answer-tables").replaceChildren(...run.answer.sections.flatMap(shown));
  draw("models");
}

// Each number of a model, divided by the largest one of its line: lines have units of their own.
function drawModels() {
  const run = answeredRun();
  const { title, agents, values } = run?.answer.models ?? { agents: [], values: {} };
  const entries = Object.keys(values);
  if (agents.length < 2 || !entries.length || entries.length > MOST_LINES) return null;
  const scale = entries.map((entry) => Math.max(...values[entry].map(Math.abs)) || 1);
  const traces = agents.map((agent, i) => ({
    x: entries.map((entry, line) => values[entry][i] / scale[line]),
    y: entries.map(plain),
    mode: "markers",
    name: plain(agent),
    marker: { color: AGENT_COLOURS[i % AGENT_COLOURS.length], size: 10, opacity: 0.85 },
    customdata: entries.map((entry) => format(values[entry][i])),
    hovertemplate: `%{y}, ${plain(agent)}: %{customdata}<extra></extra>`,
  }));
  const layout = {
    margin: { l: 110, r: 16, t: 12, b: 48 },
    xaxis: { title: { text: "value, relative to the largest of its line" }, range: [-1.08, 1.08] },
    yaxis: { autorange: "reversed", type: "category", dtick: 1, tickfont: { size: 12 } },
  };
  const rows = entries.map((entry) => [entry, ...values[entry]]);
  return { traces, layout, rows: [["entry", ...agents], ...rows], says: title, height: 130 + 26 * entries.length };
}
