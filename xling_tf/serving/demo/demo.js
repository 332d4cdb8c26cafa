// Joins the page's controls with the server's API and the two views of its answers.

import { Told, cosine, encode, fetchModels } from "./client.js";
import { EXAMPLES } from "./examples.js";
import { drawHeatMap } from "./heat_map.js";
import { showNeighbours } from "./neighbours.js";
import { builtInList, linesOf, listOfFile, nearest } from "./sentence_list.js";

const MOST_TEXTS = 100;
const NEIGHBOURS = 10;

const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((element) => [element.id, element]));
const lists = { "built-in": null, file: null };
let models = [];

/** One kind of work whose outcome stands in one place; starting it cancels what was under way. */
class Job {
  #controller = new AbortController();

  constructor(status, result) {
    this.status = status;
    this.result = result;
  }

  cancel() {
    this.#controller.abort();
    this.result.removeAttribute("aria-busy");
    this.tell("");
  }

  tell(message, isError = false) {
    this.status.textContent = message;
    this.status.classList.toggle("error", isError);
  }

  async run(work) {
    this.cancel();
    const { signal } = (this.#controller = new AbortController());
    this.result.setAttribute("aria-busy", "true");
    const tell = (message) => signal.aborted || this.tell(message);
    try {
      await work(signal, tell);
    } catch (error) {
      if (signal.aborted) return;
      this.result.hidden = true;
      this.tell(error instanceof Told ? error.message : `This page failed: ${error.message}`, true);
    } finally {
      if (!signal.aborted) this.result.removeAttribute("aria-busy");
    }
  }
}

const loading = new Job(page["model-status"], page.settings);
const comparing = new Job(page["compare-status"], page.map);
const searching = new Job(page["search-status"], page.neighbours);

/** The chosen model and its signatures for what is asked (`one`) and what it is held against (`other`). */
function chosen() {
  const model = models[page.model.selectedIndex];
  if (!model) throw new Told("There is no model yet.");
  if (model.error) throw new Told(`Model ${model.name} cannot be used: ${model.error}`);
  if (page.answering.checked) return { model, one: model.questions, other: model.answers };
  if (!model.sentences) {
    throw new Told(`Model ${model.name} has no signature that takes one list of strings and gives vectors.`);
  }
  return { model, one: model.sentences, other: model.sentences };
}

async function compare(signal, tell) {
  const { model, one, other } = chosen();
  const [rows, columns] = [page["row-texts"], page["column-texts"]].map((area) => linesOf(area.value));
  if (!rows.length || !columns.length) throw new Told("Type at least one sentence into each of the two lists.");
  if (Math.max(rows.length, columns.length) > MOST_TEXTS) {
    throw new Told(`At most ${MOST_TEXTS} sentences a list can be drawn; there are ${rows.length} and ${columns.length}.`);
  }
  tell("Comparing…");
  const left = await encode(model, one, rows, signal, { onWait: tell });
  const right = await encode(model, other, columns, signal, { onWait: tell });
  const scores = left.map((row) => right.map((column) => cosine(row, column)));
  drawHeatMap(page["map-scroll"], page.readout, rows, columns, scores);
  page.map.hidden = false;
  tell(summary(scores));
}

/** How many rows have their nearest sentence on the same line; only lists of one length can tell. */
function summary(scores) {
  const size = `${scores.length} × ${scores[0].length} sentences compared.`;
  if (scores.length !== scores[0].length) return size;
  const right = scores.filter((row, i) => row[i] === Math.max(...row)).length;
  return `${size} ${right} of ${scores.length} rows are nearest to the sentence on the same line.`;
}

async function search(signal, tell) {
  const { model, one, other } = chosen();
  const query = page.query.value.trim();
  if (!query) throw new Told("Type a sentence to search with.");
  tell("Searching…");
  const list = await chosenList();
  const onProgress = (done, all) => signal.aborted || showProgress(done, all);
  try {
    const vectors = await list.vectors(model, other, signal, { onWait: tell, onProgress });
    const [vector] = await encode(model, one, [query], signal, { onWait: tell });
    showNeighbours(page.neighbours, nearest(vector, list, vectors, NEIGHBOURS));
  } finally {
    if (!signal.aborted) page["progress-box"].hidden = true;
  }
  page.neighbours.hidden = false;
  const shown = Math.min(NEIGHBOURS, list.texts.length);
  tell(`The ${shown} nearest of ${list.texts.length.toLocaleString("en")} sentences.`);
}

async function chosenList() {
  if (page["built-in"].checked) return (lists["built-in"] ??= await builtInList());
  const [file] = page.file.files;
  if (!file) throw new Told("Choose a text file to search in.");
  return (lists.file ??= await listOfFile(file));
}

function showProgress(done, all) {
  page["progress-box"].hidden = done === all;
  page.progress.max = all;
  page.progress.value = done;
  page["progress-label"].textContent = `Embedding: ${done.toLocaleString("en")} of ${all.toLocaleString("en")}`;
}

function stopSearching() {
  searching.cancel();
  page["progress-box"].hidden = true;
}

/** What stands on the page was made by another model, or in the other way. */
function startAgain() {
  stopSearching();
  page.neighbours.hidden = true;
  comparing.run(compare);
}

function chooseModel() {
  const model = models[page.model.selectedIndex];
  const answers = Boolean(model?.questions && model?.answers);
  page["answering-label"].hidden = !answers;
  if (!answers && page.answering.checked) {
    page.answering.checked = false;
    switchRoles();
  }
  startAgain();
}

/** Other labels, and other examples where nobody has typed over them. */
function switchRoles() {
  const answering = page.answering.checked;
  page["answering-hint"].hidden = !answering;
  page["row-label"].textContent = answering ? "Questions" : "One language";
  page["column-label"].textContent = answering ? "Answers" : "Another language";
  page["query-label"].textContent = answering ? "Question, in any language" : "Query, in any language";
  showExamples(answering ? EXAMPLES.answers : EXAMPLES.sentences);
}

function showExamples({ rows, columns, query }) {
  const examples = { "row-texts": rows.join("\n"), "column-texts": columns.join("\n"), query };
  for (const [id, text] of Object.entries(examples)) {
    const typed = page[id].value !== page[id].defaultValue;
    page[id].defaultValue = text;
    if (!typed) page[id].value = text;
  }
  countTexts();
}

function countTexts() {
  for (const side of ["row", "column"]) {
    const count = linesOf(page[`${side}-texts`].value).length;
    page[`${side}-count`].textContent = `${count} ${count === 1 ? "sentence" : "sentences"}`;
  }
}

async function loadModels() {
  models = await fetchModels();
  if (!models.length) throw new Told("The server has no models.");
  page.model.replaceChildren(...models.map(({ name }) => new Option(name, name)));
  page.model.disabled = false;
  chooseModel();
}

page.model.addEventListener("change", chooseModel);
page.answering.addEventListener("change", () => {
  switchRoles();
  startAgain();
});
page["compare-form"].addEventListener("submit", (event) => {
  event.preventDefault();
  comparing.run(compare);
});
page["compare-form"].addEventListener("input", countTexts);
page["compare-form"].addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) page["compare-form"].requestSubmit();
});
page["search-form"].addEventListener("submit", (event) => {
  event.preventDefault();
  searching.run(search);
});
page.file.addEventListener("change", () => {
  lists.file = null;
  page["from-file"].checked = true;
  searching.run(search);
});
page.cancel.addEventListener("click", () => {
  stopSearching();
  searching.tell("Cancelled. Searching again goes on from here.");
  page.query.focus();
});
showExamples(EXAMPLES.sentences);
loading.run(loadModels);
