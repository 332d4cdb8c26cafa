// What is searched: sentences, and the vectors that they got so far.

import { Told, cosine, encode } from "./client.js";

const MOST_LINES = 10_000;
const MOST_BYTES = 5_000_000;
// More than rounding, of the same text by the same model alone and in a batch.
const DIFFERENT = 0.001;

/** Lines without white space around them, and without empty ones. */
export function linesOf(text) {
  return text.split(/\r\n|[\r\n]/).map((line) => line.trim()).filter(Boolean);
}

/**
 * Sentences and, for each model's signature, their vectors, which are made once and kept.
 *
 * An entry is `{text, note, language, translation}`; only the text is always there.
 */
export class SentenceList {
  #vectors = new Map();

  constructor(entries) {
    this.entries = entries;
    this.texts = entries.map((entry) => entry.text);
  }

  /** Makes the vectors that are missing; what was made before it was cancelled is not made again. */
  async vectors(model, signature, signal, { onWait, onProgress }) {
    const key = JSON.stringify([model.name, signature.name]);
    if (!this.#vectors.has(key)) this.#vectors.set(key, []);
    const made = this.#vectors.get(key);
    if (made.length && (await this.#areStale(made, model, signature, signal, onWait))) made.length = 0;
    if (made.length < this.texts.length) onProgress(made.length, this.texts.length);
    const onBatch = (vectors) => {
      made.push(...vectors);
      onProgress(made.length, this.texts.length);
    };
    await encode(model, signature, this.texts.slice(made.length), signal, { onWait, onBatch });
    return made;
  }

  /** Whether the server has another version of the model by now; its first vector tells. */
  async #areStale(made, model, signature, signal, onWait) {
    const [now] = await encode(model, signature, this.texts.slice(0, 1), signal, { onWait });
    const [then] = made;
    return now.length !== then.length || now.some((value, i) => Math.abs(value - then[i]) > DIFFERENT);
  }
}

/** The `count` entries nearest to a vector, nearest first: `{entry, score}`; of equal ones the first. */
export function nearest(query, list, vectors, count) {
  if (vectors.some((vector) => vector.length !== query.length)) {
    throw new Told("The query's vector and the list's have different lengths: they do not compare.");
  }
  const found = vectors.map((vector, i) => ({ entry: list.entries[i], score: cosine(query, vector) }));
  return found.sort((one, other) => other.score - one.score).slice(0, count);
}

/** The list that comes with the page: the header names the languages, the first one is English. */
export async function builtInList() {
  const response = await fetch("demo/sentences.tsv").catch(() => null);
  if (!response?.ok) throw new Told("The built-in list cannot be loaded. Is the server still running?");
  const [languages, ...rows] = linesOf(await response.text()).map((line) => line.split("\t"));
  return new SentenceList(
    rows.flatMap((row) =>
      row.map((text, i) => ({ text, note: languages[i], language: languages[i], translation: i ? row[0] : "" })),
    ),
  );
}

/** The list in a file that was chosen; `Told` says what is wrong with another one. */
export async function listOfFile(file) {
  const limit = `at most ${MOST_LINES.toLocaleString("en")} lines and ${MOST_BYTES / 1e6} MB can be searched here`;
  if (file.size > MOST_BYTES) {
    throw new Told(`${file.name} has ${(file.size / 1e6).toFixed(1)} MB; ${limit}.`);
  }
  const entries = (await textOf(file))
    .split(/\r\n|[\r\n]/)
    .map((line, i) => ({ text: line.trim(), note: `line ${i + 1}` }))
    .filter((entry) => entry.text);
  if (!entries.length) throw new Told(`${file.name} has no sentences: every line is empty.`);
  if (entries.length > MOST_LINES) {
    throw new Told(`${file.name} has ${entries.length.toLocaleString("en")} sentences; ${limit}.`);
  }
  return new SentenceList(entries);
}

async function textOf(file) {
  const kind = `${file.name} is not a text file in UTF-8; save it as plain text, one sentence a line.`;
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch (error) {
    throw new Told(error instanceof TypeError ? kind : `${file.name} cannot be read: ${error.message}`);
  }
  if (text.includes("\0")) throw new Told(kind);
  return text;
}
