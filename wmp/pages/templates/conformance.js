"use strict";
// A row is shown if one of its verdicts is selected. A link opens the conversation that is its target.
const boxes = [...document.querySelectorAll("#legend input")];
function sift() {
  const shown = boxes.filter((box) => box.checked).map((box) => box.dataset.shows);
  for (const row of document.querySelectorAll("tr.rule")) {
    const cells = [...row.cells].slice(2).filter((cell) => !cell.classList.contains("none"));
    row.classList.toggle("hidden", !cells.some((cell) => shown.includes(cell.classList[0])));
  }
}
for (const box of boxes) box.addEventListener("change", sift);
function open_it() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", open_it);
open_it();
