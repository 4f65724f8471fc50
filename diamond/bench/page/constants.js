// Tuned constants: what was found best on every case.

function showConstants() {
  const numbersText = (numbers) => Object.entries(numbers).map(([name, value]) => `${name} ${format(value)}`).join(", ");
  const edge = (edges) => Object.entries(edges).map(([name, end]) => `${name} (${end})`).join(", ");
  const rows = data.constants.filter(passes).map(({ case: name, method, numbers, tried, lost, edges }) => [
    methodCell(methodOf.get(method)),
    make("td", { class: "left" }, name),
    make("td", { class: "left" }, numbersText(numbers)),
    String(tried),
    lost ? make("td", { class: "bad" }, String(lost)) : "0",
    make("td", { class: "left" }, edge(edges) || "no"),
  ]);
  fillTable("constants", ["Method", "case", "best numbers", "settings tried", "of them diverged", "at the edge"], rows);
}
