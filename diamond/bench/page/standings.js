// Profiles and ranks of a matrix (cases, methods), as diamond/bench/statistics.py has them. They are
// made here too because filters change which cases and methods there are.

const bestOf = (costs) => Math.min(...costs.map((v) => (Number.isNaN(v) ? Infinity : v)));

// A cost over the best one: 1 for equals, even of nothing; Infinity for what never gets there.
const factorOf = (cost, best) => (Number.isFinite(cost) ? (cost === best ? 1 : cost / best) : Infinity);

// For every method, its factors on the cases it met.
function factors(costs, count) {
  const best = costs.map(bestOf);
  return Array.from({ length: count }, (_, j) =>
    costs.map((row, i) => [row[j], best[i]]).filter(([cost]) => !Number.isNaN(cost)).map(([cost, least]) => factorOf(cost, least)),
  );
}

const shareWithin = (mine, factor) => (mine.length ? mine.filter((v) => v <= factor).length / mine.length : 0);

// Ranks from 1, shared by equals.
function rankRow(costs) {
  return costs.map((cost) => {
    const before = costs.filter((other) => other < cost).length;
    return before + (costs.filter((other) => other === cost).length + 1) / 2;
  });
}

// Shared-case ranks, averages over the cases that all methods met, how many these are, and the critical difference.
function rankings(costs, count) {
  const met = costs.filter((row) => !row.some(Number.isNaN));
  const n = met.length;
  if (!n || count < 2) return { n, average: Array(count).fill(NaN), difference: NaN };
  const each = met.map(rankRow);
  const average = Array.from({ length: count }, (_, j) => each.reduce((sum, row) => sum + row[j], 0) / n);
  return { n, average, difference: data.nemenyi[count] * Math.sqrt((count * (count + 1)) / (6 * n)) };
}

// The longest stretches of sorted ranks that are all within the difference, of two or more.
function cliques(sorted, difference) {
  const found = [];
  sorted.forEach((low, i) => {
    const end = sorted.findLastIndex((high) => high - low < difference);
    if (end > i && !found.some(([, last]) => last >= end)) found.push([i, end]);
  });
  return found;
}

// Methods from the best shared-case rank on; where there are none, by the share of cases solved.
function ordered() {
  const [cases, methods] = [shownCases(), shownMethods()];
  const costs = matrix(cases, methods);
  const { average } = rankings(costs, methods.length);
  const solved = factors(costs, methods.length).map((mine) => shareWithin(mine, Number.MAX_VALUE));
  const key = (j) => (Number.isNaN(average[j]) ? 0 : average[j]);
  const order = methods.map((_, j) => j).sort((a, b) => key(a) - key(b) || solved[b] - solved[a] || a - b);
  return order.map((j) => methods[j]);
}
