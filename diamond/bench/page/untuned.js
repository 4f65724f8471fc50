// What you get without tuning: the cost of each method's own choice over that of the tuned one.

function ratioCell(tuned, own) {
  if (Number.isNaN(tuned)) return make("td", { class: "none" }, "");
  const [tunedReaches, untunedReaches] = [Number.isFinite(tuned), Number.isFinite(own)];
  if (!tunedReaches && !untunedReaches) return make("td", { class: "none" }, "neither");
  if (!untunedReaches) return make("td", { class: "bad" }, "only tuned");
  if (!tunedReaches) return make("td", { class: "good" }, "only untuned");
  const ratio = factorOf(own, tuned);
  if (!Number.isFinite(ratio)) return make("td", {}, `${amount(state.cost, own)} for nothing`);
  return make("td", ratio <= 1 ? { class: "good" } : {}, times(ratio));
}

function showUntuned() {
  const [cases, methods] = [shownCases(), ordered()];
  const [tuned, own] = ["tuned", "untuned"].map((kind) => matrix(cases, methods, kind));
  const solved = (costs, j) => costs.filter((row) => Number.isFinite(row[j])).length;
  const body = methods.map((method, j) => [
    methodCell(method),
    ...cases.map((_, i) => ratioCell(tuned[i][j], own[i][j])),
    `${solved(own, j)}, tuned ${solved(tuned, j)}`,
  ]);
  fillTable("untuned", ["Method", ...caseHeads(cases), "cases solved"], body);
  const total = (costs) => costs.flat().filter(Number.isFinite).length;
  const ratios = tuned.flatMap((row, i) => row.map((cost, j) => [own[i][j], cost])).filter((both) => both.every(Number.isFinite));
  const middle = median(finite(ratios.map(([mine, best]) => factorOf(mine, best))));
  const price = middle === null ? "" : ` Where both get there, the median factor is ${times(middle)}.`;
  $("untuned-verdict").textContent =
    `Without tuning ${total(own)} of ${count(own.flat().filter((v) => !Number.isNaN(v)).length, "pair")} of method and case ` +
    `get to the target, tuned ${total(tuned)}.${price}`;
}
