// Colours: those of the system, until the reader takes the others.

function listenTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (name) => {
    document.documentElement.dataset.theme = name;
    $("theme").textContent = name === "dark" ? "Light colours" : "Dark colours";
  };
  let own = false;
  set(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => {
    if (own) return;
    set(dark.matches ? "dark" : "light");
    drawAll();
  });
  $("theme").addEventListener("click", () => {
    own = true;
    set(theme() === "dark" ? "light" : "dark");
    drawAll();
  });
}
