// The heat map: a table whose cells are coloured by cosine and walked with the arrow keys.

import { formatted } from "./client.js";

// Wider maps have labels that stand upright; with more cells a side, values are read by pointing.
const MOST_FLAT_LABELS = 10;
const MOST_SHOWN_VALUES = 20;
// From here on the ground is so strong that the other ink reads better on it: 4.5 to 1 or more everywhere.
const STRONG = 0.75;

/**
 * Draws the map.
 *
 * @param {HTMLElement} box Its content is replaced.
 * @param {HTMLElement} readout Shows the cell that is pointed at or focused.
 * @param {string[]} rows
 * @param {string[]} columns
 * @param {number[][]} scores
 */
export function drawHeatMap(box, readout, rows, columns, scores) {
  const table = document.createElement("table");
  table.className = "heat";
  table.setAttribute("role", "grid");
  table.setAttribute("aria-labelledby", "similarity-heading");
  table.classList.toggle("upright", columns.length > MOST_FLAT_LABELS);
  table.classList.toggle("small", Math.max(rows.length, columns.length) > MOST_SHOWN_VALUES);
  const head = table.createTHead().insertRow();
  head.append(document.createElement("td"), ...columns.map((text) => label(text, "col")));
  const body = table.createTBody();
  rows.forEach((text, r) => {
    const best = Math.max(...scores[r]);
    body.insertRow().append(label(text, "row"), ...scores[r].map((score) => cell(score, score === best)));
  });
  body.rows[0].cells[1].tabIndex = 0;
  listen(table, (r, c) => {
    readout.replaceChildren(line(formatted(scores[r][c]), "number"), line(rows[r]), line(columns[c]));
  });
  readout.textContent = "Point at a cell, or go through them with the arrow keys.";
  box.replaceChildren(table);
}

function label(text, scope) {
  const header = document.createElement("th");
  header.scope = scope;
  header.title = text;
  header.append(line(text));
  return header;
}

function cell(score, isBest) {
  const made = document.createElement("td");
  made.textContent = formatted(score);
  made.tabIndex = -1;
  made.style.setProperty("--share", `${(100 * Math.abs(score)).toFixed(1)}%`);
  made.classList.toggle("negative", score < 0);
  made.classList.toggle("strong", Math.abs(score) >= STRONG);
  made.classList.toggle("best", isBest);
  return made;
}

function line(text, className = "") {
  const made = document.createElement("span");
  made.className = className;
  made.textContent = text;
  return made;
}

const STEPS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  Home: [0, -Infinity],
  End: [0, Infinity],
};

function listen(table, show) {
  const body = table.tBodies[0];
  const read = (event) => {
    const at = event.target.closest("tbody td");
    if (at) show(at.parentElement.sectionRowIndex, at.cellIndex - 1);
  };
  table.addEventListener("pointerover", read);
  table.addEventListener("focusin", read);
  table.addEventListener("keydown", (event) => {
    const at = event.target.closest("tbody td");
    if (!at || !(event.key in STEPS)) return;
    event.preventDefault();
    const [down, right] = STEPS[event.key];
    const row = body.rows[clamp(at.parentElement.sectionRowIndex + down, 0, body.rows.length - 1)];
    const next = row.cells[clamp(at.cellIndex + right, 1, row.cells.length - 1)];
    at.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

function clamp(value, least, most) {
  return Math.max(least, Math.min(most, value));
}
