// Compares two lists of sentences, searches one of them and lists the model's signatures, by the server's REST API.

import { curlLine, fetchJson, made, page } from "./server.js";

// By language: five sentences, and a paraphrase of the third.
const EXAMPLES = {
  en: [
    "The neighbours are painting their house yellow.",
    "I missed the last bus home.",
    "The bakery opens before sunrise.",
    "We went swimming in the lake.",
    "My brother repairs old bicycles.",
    "Early in the morning you can buy bread.",
  ],
  es: [
    "Los vecinos están pintando su casa de amarillo.",
    "Perdí el último autobús a casa.",
    "La panadería abre antes del amanecer.",
    "Fuimos a nadar al lago.",
    "Mi hermano arregla bicicletas viejas.",
    "Por la mañana temprano se puede comprar pan.",
  ],
  fr: [
    "Les voisins peignent leur maison en jaune.",
    "J'ai raté le dernier bus pour rentrer.",
    "La boulangerie ouvre avant le lever du soleil.",
    "Nous sommes allés nager dans le lac.",
    "Mon frère répare de vieux vélos.",
    "On peut acheter du pain tôt le matin.",
  ],
  de: [
    "Die Nachbarn streichen ihr Haus gelb.",
    "Ich habe den letzten Bus nach Hause verpasst.",
    "Die Bäckerei öffnet vor Sonnenaufgang.",
    "Wir sind im See schwimmen gegangen.",
    "Mein Bruder repariert alte Fahrräder.",
    "Früh am Morgen kann man Brot kaufen.",
  ],
  zh: [
    "邻居们正在把房子刷成黄色。",
    "我错过了回家的末班车。",
    "面包店在日出前开门。",
    "我们去湖里游泳了。",
    "我哥哥修理旧自行车。",
    "清晨就可以买到面包。",
  ],
};
const LANGUAGES = new Map(Object.entries(EXAMPLES).flatMap(([code, texts]) => texts.map((text) => [text, code])));
const BATCH = 64;
const MOST_TEXTS = 1000;
const MOST_DRAWN = 100;
const NEIGHBOURS = 10;

let signatures = {};
let lines = {}; // slope and intercept of the probability of a match, by the kind of match
let examples = {}; // what the page put into the boxes
let latest = 0; // Only the outcome of the latest request is shown.

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
    const path = `${pathOf(page.model.value)}:predict`;
    const { predictions } = await fetchJson(path, body);
    page.curl.textContent = curlLine(path, body);
    page.command.hidden = false;
    for (const prediction of predictions) {
      const vector = Array.isArray(prediction) ? prediction : prediction?.outputs;
      if (!vector?.every?.(Number.isFinite)) throw new Error(`Signature ${name} does not give vectors.`);
      const length = Math.hypot(...vector) || 1;
      vectors.push(vector.map((number) => number / length));
    }
  }
  return vectors;
}

/** An element with a sentence, and its language if that is known, for screen readers. */
const sentence = (tag, text, attributes = {}) =>
  made(tag, text, LANGUAGES.has(text) ? { ...attributes, lang: LANGUAGES.get(text) } : attributes);

/** The probability that a pair matches, as `client.match.probabilities` computes it; null if the model has none. */
function probability(score, candidates) {
  const line = lines[page.qa.checked ? "answer" : "same_meaning"];
  if (!line) return null;
  const [slope, intercept] = line;
  return 1 / (1 + Math.exp(-(slope * score + intercept - (page.qa.checked ? Math.log(candidates) / 2 : 0))));
}

function noteOfMatches() {
  const match = page.qa.checked ? "the right answers the left" : "both mean the same";
  if (probability(0, 1) === null) return ` This model does not say how probable it is that ${match}.`;
  return ` Underlined: ${match} with a probability of one half or more.`;
}

const cosine = (one, other) => one.reduce((sum, number, i) => sum + number * other[i], 0);
const shown = (score) => score.toFixed(2).replace(/^-0\.00$/, "0.00").replace("-", "−");

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
  const head = made("tr", "");
  head.append(made("td", ""), ...columns.map((text) => sentence("th", text, { scope: "col" })));
  const body = scores.map((row, r) => {
    const line = made("tr", "");
    const likely = row.map((score) => probability(score, columns.length));
    const cells = row.map((score, c) => made("td", shown(score), likely[c] === null ? {} : { title: `probability ${shown(likely[c])}` }));
    cells.forEach((cell, c) => cell.classList.toggle("best", row[c] === Math.max(...row)));
    cells.forEach((cell, c) => cell.classList.toggle("match", likely[c] >= 0.5));
    cells.forEach((cell, c) => cell.style.setProperty("--share", Math.max(0, row[c])));
    line.append(sentence("th", rows[r], { scope: "row" }), ...cells);
    return line;
  });
  const note = noteOfMatches();
  const hits = scores.filter((row, r) => row[r] === Math.max(...row)).length;
  return () => {
    const caption = made("caption", "Cosines of the sentences on the left (rows) with those on the right (columns); the highest of each row is framed." + note);
    page.map.replaceChildren(caption, head, ...body);
    page.map.hidden = false;
    return `${rows.length} × ${columns.length} sentences compared; ${hits} are nearest to the sentence on the same line.`;
  };
}

async function search() {
  const [queries, texts] = sentences(MOST_TEXTS, page.query, page.right);
  const [[query], vectors] = await Promise.all([encode(queries, "left"), encode(texts, "right")]);
  const scored = texts.map((text, i) => ({ text, score: cosine(query, vectors[i]) }));
  const nearest = scored.sort((one, other) => other.score - one.score).slice(0, NEIGHBOURS);
  const likely = nearest.map(({ score }) => probability(score, texts.length));
  const items = nearest.map(({ text, score }, i) => {
    const item = made("li", "");
    item.append(made("b", shown(score)), sentence("span", text));
    if (likely[i] !== null) item.append(made("small", `probability ${shown(likely[i])}`));
    item.classList.toggle("match", likely[i] >= 0.5);
    return item;
  });
  const matches = likely.filter((each) => each >= 0.5).length;
  const note = likely[0] === null ? "" : ` ${matches || "None"} of them ${matches === 1 ? "matches" : "match"} with a probability of one half or more.`;
  return () => {
    page.neighbours.replaceChildren(...items);
    page.neighbours.hidden = false;
    return `The ${items.length} nearest of ${texts.length} sentences.${note}`;
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
    .sort()
    .map(([name, { dtype, tensor_shape: shape }]) => {
      const sizes = (shape?.dim ?? []).map(({ size }) => (size === "-1" ? "n" : size));
      return `${name}: ${dtype.replace("DT_", "").toLowerCase()} [${sizes.join(", ")}]`;
    })
    .join("; ");

function showSignatures() {
  const callable = Object.entries(signatures).filter(([name]) => !name.startsWith("__"));
  const rows = callable.sort().map(([name, { inputs, outputs }]) => {
    const row = made("tr", "");
    row.append(made("th", name, { scope: "row" }), made("td", tensorsOf(inputs)), made("td", tensorsOf(outputs)));
    return row;
  });
  page.signatures.tBodies[0].replaceChildren(...rows);
}

/** Sentences in the model's languages, for the boxes that the user has not changed. */
function showExamples(languages) {
  const known = languages.filter((code) => code in EXAMPLES);
  const [first, ...others] = known.length ? known : ["en", "es"];
  const sentencesOf = (codes) => EXAMPLES.en.slice(0, 5).map((_, i) => EXAMPLES[codes[i % codes.length]][i]).join("\n");
  const next = { left: sentencesOf([first]), right: sentencesOf(others.length ? others : [first]), query: EXAMPLES[first][5] };
  for (const [id, text] of Object.entries(next)) if (page[id].value === (examples[id] ?? "")) page[id].value = text;
  examples = next;
}

async function chooseModel() {
  const [{ metadata }, { languages, match = {} }] = await Promise.all([
    fetchJson(`${pathOf(page.model.value)}/metadata`),
    fetchJson(`info?model=${encodeURIComponent(page.model.value)}`),
  ]);
  signatures = metadata.signature_def.signature_def;
  lines = match;
  showSignatures();
  showExamples(languages);
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

for (const [id, work] of Object.entries({ compare, search })) {
  page[id].addEventListener("submit", (event) => {
    event.preventDefault();
    run(work);
  });
}
page.model.addEventListener("change", () => run(chooseModel));
page.qa.addEventListener("change", () => run(compare));
run(start);
