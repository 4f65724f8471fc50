// The numbers of the page, and what the reader has chosen of them. Nothing here draws.

const data = JSON.parse($("data").textContent);
const ANY = "";

const state = {
  cost: "calls" in data.costs ? "calls" : Object.keys(data.costs)[0],
  tau: data.tau,
  kind: "tuned",
  level: ANY,
  oracle: ANY,
  topology: ANY,
  case: data.cases[0].name,
  both: false,
  range: data.methods.length <= 6, // more of them hide one another
  logX: false,
};

const pairKey = (case_, method) => JSON.stringify([case_, method]);
const caseOf = new Map(data.cases.map((one) => [one.name, one]));
const methodOf = new Map(data.methods.map((one) => [one.name, one]));

// Whether a pair of case and method is one that the filters let through.
function passes({ case: name, method }) {
  const is = (wanted, value) => wanted === ANY || wanted === value;
  const { lower_level: level, topology } = caseOf.get(name);
  return is(state.level, level) && is(state.topology, topology) && is(state.oracle, methodOf.get(method).oracle);
}

const rowsOf = (kind) => data.table[state.tau][kind].filter(passes);

// Rows by case and method.
const byPair = (rows) => new Map(rows.map((row) => [pairKey(row.case, row.method), row]));

function shownCases() {
  const met = new Set(rowsOf("tuned").map((row) => row.case));
  return data.cases.filter(({ name }) => met.has(name));
}

function shownMethods() {
  const met = new Set(rowsOf("tuned").map((row) => row.method));
  return data.methods.filter(({ name }) => met.has(name));
}

// The median cost of a row: Infinity if the target is not reached, NaN for no run or none counted.
function costOf(row) {
  const found = row?.cost[state.cost];
  return found === undefined ? NaN : (found[0] ?? Infinity);
}

// (cases, methods): the costs that profiles and ranks are made of.
function matrix(cases, methods, kind = state.kind) {
  const rows = byPair(rowsOf(kind));
  return cases.map((one) => methods.map((method) => costOf(rows.get(pairKey(one.name, method.name)))));
}
