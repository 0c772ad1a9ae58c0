// Dark or light: as the system has it, until the person chooses.

const KEY = "constrain-review-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export function applyTheme() {
  let chosen = null;
  try {
    chosen = localStorage.getItem(KEY);
  } catch {
    // A browser that keeps nothing follows the system.
  }
  if (chosen) document.documentElement.dataset.theme = chosen;
}

export function toggleTheme() {
  const current = document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light");
  const other = current === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = other;
  try {
    localStorage.setItem(KEY, other);
  } catch {
    // It holds until the page is closed.
  }
}
