// Cost to target: methods by cases.

const UNITS = { round: "rounds", calls: "gradients and products", seconds: "seconds of computing", network_seconds: "network seconds" };
const unit = () => UNITS[state.cost] ?? state.cost;
const times = (factor) => `${factor.toFixed(factor < 10 ? 2 : 0)}×`;
const caseHeads = (cases) => cases.map(({ name, title }) => make("span", { title }, name));

// How seeds failed, in words.
function reasons(failure, kinds = ["diverged", "above_start", "short"]) {
  const words = { diverged: "diverged", above_start: "ended above the start", short: "not yet there" };
  const had = kinds.filter((kind) => failure?.[kind]);
  return had.map((kind) => `${failure[kind]} of ${failure.seeds} ${words[kind]}`).join(", ");
}

const failureOf = (kind) => byPair(data.failures[state.tau].filter((one) => one.kind === kind));

function costCell(row, best, failure) {
  if (!row) return make("td", { class: "none" }, make("small", {}, "no run"));
  const cost = costOf(row);
  const seeds = `${row.reached} of ${row.seeds}`;
  if (Number.isNaN(cost)) return make("td", { class: "none" }, "–", make("small", {}, "not counted"));
  if (cost === Infinity) return make("td", { class: "none" }, "–", make("small", {}, reasons(failure)));
  const [, low, high] = row.cost[state.cost];
  const end = (value) => (value === null ? "never" : amount(state.cost, value));
  const factor = factorOf(cost, best);
  const more = Number.isFinite(factor) ? ` · ${times(factor)}` : "";
  const parts = [`${end(low)} – ${end(high)}`, `${seeds}${more}`].map((text) => make("small", {}, text));
  const lost = reasons(failure, ["diverged", "above_start"]);
  if (lost) parts.push(make("small", { class: "bad" }, lost));
  return make("td", cost === best ? { class: "best" } : {}, amount(state.cost, cost), ...parts);
}

function showCosts() {
  const [cases, methods] = [shownCases(), ordered()];
  const [rows, failed] = [byPair(rowsOf(state.kind)), failureOf(state.kind)];
  const costs = matrix(cases, methods);
  const best = costs.map(bestOf);
  const body = methods.map((method) => [
    methodCell(method),
    ...cases.map((one, i) => {
      const key = pairKey(one.name, method.name);
      return costCell(rows.get(key), best[i], failed.get(key));
    }),
  ]);
  fillTable("costs", ["Method", ...caseHeads(cases)], body);
  $("verdict").textContent = costVerdict(methods, costs, best);
}

// The table in a sentence: who is the cheapest, and on how many cases.
function costVerdict(methods, costs, best) {
  const wins = methods.map(({ name }, j) => [name, costs.filter((row, i) => row[j] === best[i] && Number.isFinite(best[i])).length]);
  const won = wins.filter(([, cases]) => cases).sort((a, b) => b[1] - a[1]);
  const never = best.filter((v) => v === Infinity).length;
  const winners = won.slice(0, 5).map(([name, cases], i) => `${name} on ${i ? cases : count(cases, "case")}`);
  if (won.length > 5) winners.push(`${won.length - 5} others on fewer`);
  const kind = state.kind === "tuned" ? "tuned" : "without tuning";
  const first = winners.length ? `Fewest ${unit()}, ${kind}: ${winners.join(", ")}.` : "No method reaches any target.";
  return winners.length && never ? `${first} ${count(never, "case")} solved by none.` : first;
}
