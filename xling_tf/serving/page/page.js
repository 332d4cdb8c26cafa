// Compares two lists of sentences, searches one of them and lists the model's signatures, by the server's REST API.

const EXAMPLES = {
  left: `The neighbours are painting their house yellow.
I missed the last bus home.
The bakery opens before sunrise.
We went swimming in the lake.
My brother repairs old bicycles.`,
  right: `Los vecinos están pintando su casa de amarillo.
Perdí el último autobús a casa.
La panadería abre antes del amanecer.
Fuimos a nadar al lago.
Mi hermano arregla bicicletas viejas.`,
  query: "Early in the morning you can buy bread.",
};
const BATCH = 64;
const MOST_TEXTS = 1000;
const MOST_DRAWN = 100;
const NEIGHBOURS = 10;

const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((element) => [element.id, element]));
let signatures = {};
let latest = 0; // Only the outcome of the latest request is shown.

async function fetchJson(path, request) {
  let answer;
  try {
    answer = await fetch(path, request);
  } catch {
    throw new Error("The server cannot be reached. Is it still running?");
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(`The server refused (${answer.status}): ${body.error?.message ?? body.error ?? answer.statusText}`);
  return body;
}

const pathOf = (model) => `v1/models/${encodeURIComponent(model)}`;
const linesOf = (text) => text.split(/\r\n|[\r\n]/).map((line) => line.trim()).filter(Boolean);
const inputsOf = (name) => Object.keys(signatures[name]?.inputs ?? {}).sort();

/** The signature that encodes a side: that of questions or answers, or the first with one input. */
function signatureOf(side) {
  if (page.qa.checked) return side === "left" ? "question_encoder" : "response_encoder";
  const name = ["serving_default", "default", ...Object.keys(signatures)].find((each) => inputsOf(each).length === 1);
  if (!name) throw new Error("This model has no signature that takes one list of texts.");
  return name;
}

/** A vector of unit length for each text. */
async function encode(texts, side) {
  const name = signatureOf(side);
  const inputs = inputsOf(name);
  const vectors = [];
  for (let start = 0; start < texts.length; start += BATCH) {
    // An answer is its own context, as the published module's page advises.
    const instances = texts.slice(start, start + BATCH).map((text) => Object.fromEntries(inputs.map((key) => [key, text])));
    const body = JSON.stringify({ signature_name: name, instances });
    const { predictions } = await fetchJson(`${pathOf(page.model.value)}:predict`, { method: "POST", body });
    for (const prediction of predictions) {
      const vector = Array.isArray(prediction) ? prediction : prediction?.outputs;
      if (!vector?.every?.(Number.isFinite)) throw new Error(`Signature ${name} does not give vectors.`);
      const length = Math.hypot(...vector) || 1;
      vectors.push(vector.map((number) => number / length));
    }
  }
  return vectors;
}

const cosine = (one, other) => one.reduce((sum, number, i) => sum + number * other[i], 0);
const shown = (score) => score.toFixed(2).replace(/^-0\.00$/, "0.00").replace("-", "−");

function made(tag, text, className = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = className;
  return element;
}

/** The sentences in the text boxes; an error if a box has none or too many. */
function sentences(most, ...boxes) {
  const lists = boxes.map((box) => linesOf(box.value));
  if (lists.some((list) => !list.length)) throw new Error("Type at least one sentence into each box.");
  if (lists.some((list) => list.length > most)) throw new Error(`At most ${most} sentences a box, please.`);
  return lists;
}

async function compare() {
  const [rows, columns] = sentences(MOST_DRAWN, page.left, page.right);
  const [left, right] = await Promise.all([encode(rows, "left"), encode(columns, "right")]);
  const scores = left.map((row) => right.map((column) => cosine(row, column)));
  const head = document.createElement("tr");
  head.append(made("td", ""), ...columns.map((text) => made("th", text)));
  const body = scores.map((row, r) => {
    const line = document.createElement("tr");
    const cells = row.map((score) => made("td", shown(score), score === Math.max(...row) ? "best" : ""));
    cells.forEach((cell, c) => cell.style.setProperty("--share", Math.max(0, row[c])));
    line.append(made("th", rows[r]), ...cells);
    return line;
  });
  const hits = scores.filter((row, r) => row[r] === Math.max(...row)).length;
  return () => {
    page.map.replaceChildren(head, ...body);
    page.map.hidden = false;
    return `${rows.length} × ${columns.length} sentences compared; ${hits} are nearest to the sentence on the same line.`;
  };
}

async function search() {
  const [queries, texts] = sentences(MOST_TEXTS, page.query, page.right);
  const [[query], vectors] = await Promise.all([encode(queries, "left"), encode(texts, "right")]);
  const scored = texts.map((text, i) => ({ text, score: cosine(query, vectors[i]) }));
  const nearest = scored.sort((one, other) => other.score - one.score).slice(0, NEIGHBOURS);
  const items = nearest.map(({ text, score }) => {
    const item = document.createElement("li");
    item.append(made("b", shown(score)), made("span", text));
    return item;
  });
  return () => {
    page.neighbours.replaceChildren(...items);
    page.neighbours.hidden = false;
    return `The ${items.length} nearest of ${texts.length} sentences.`;
  };
}

/** Runs a request and shows its outcome, unless a later request has begun. */
async function run(work) {
  const number = ++latest;
  page.status.textContent = "…";
  page.status.className = "";
  page.map.hidden = page.neighbours.hidden = true;
  try {
    const show = await work();
    if (number === latest) page.status.textContent = show();
  } catch (error) {
    if (number !== latest) return;
    page.status.textContent = error.message;
    page.status.className = "error";
  }
}

const tensorsOf = (infos = {}) =>
  Object.entries(infos)
    .map(([name, { dtype, tensor_shape: shape }]) => {
      const sizes = (shape?.dim ?? []).map(({ size }) => (size === "-1" ? "n" : size));
      return `${name}: ${dtype.replace("DT_", "").toLowerCase()} [${sizes.join(", ")}]`;
    })
    .join("; ");

function showSignatures() {
  const rows = Object.entries(signatures).map(([name, { inputs, outputs }]) => {
    const row = document.createElement("tr");
    row.append(made("th", name), made("td", tensorsOf(inputs)), made("td", tensorsOf(outputs)));
    return row;
  });
  page.signatures.tBodies[0].replaceChildren(...rows);
}

async function chooseModel() {
  const { metadata } = await fetchJson(`${pathOf(page.model.value)}/metadata`);
  signatures = metadata.signature_def.signature_def;
  showSignatures();
  const answers = "question_encoder" in signatures && "response_encoder" in signatures;
  page["qa-label"].hidden = !answers;
  page.qa.checked &&= answers;
  return compare();
}

async function start() {
  const { data } = await fetchJson("v1/models");
  page.model.replaceChildren(...data.map(({ id }) => new Option(id, id)));
  return chooseModel();
}

for (const [id, text] of Object.entries(EXAMPLES)) page[id].value = text;
for (const [id, work] of Object.entries({ compare, search })) {
  page[id].addEventListener("submit", (event) => {
    event.preventDefault();
    run(work);
  });
}
page.model.addEventListener("change", () => run(chooseModel));
page.qa.addEventListener("change", () => run(compare));
run(start);
