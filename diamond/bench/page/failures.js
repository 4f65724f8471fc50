// Where methods fail: divergence, an end above the start, a target not yet reached.

function showFailures() {
  const found = data.failures[state.tau].filter(passes);
  const warn = (seeds) => (seeds ? make("td", { class: "bad" }, String(seeds)) : "0");
  const rows = found.map((one) => [
    methodCell(methodOf.get(one.method)),
    make("td", { class: "left" }, one.case),
    make("td", { class: "left" }, one.kind === "tuned" ? "tuned" : "without tuning"),
    String(one.seeds),
    warn(one.diverged),
    warn(one.above_start),
    String(one.short),
    one.left === null ? "–" : one.left.toPrecision(2),
  ]);
  const head = ["Method", "case", "numbers", "seeds", "diverged", "ended above the start", "not yet there", "left at the end"];
  fillTable("failures", head, rows);
  const pairs = rowsOf("tuned").length;
  const failed = (kind) => found.filter((one) => one.kind === kind && one.missed).length;
  $("failures-verdict").textContent = found.length
    ? `Some seed misses the target on ${failed("tuned")} of ${count(pairs, "pair")} of method and case tuned, ${failed("untuned")} without tuning.`
    : "No run diverged, ended above its start or missed the target.";
}
