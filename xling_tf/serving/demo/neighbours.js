// The nearest neighbours as a list: score, text, where it is from, and what it means in English.

import { formatted } from "./client.js";

/** Replaces the list's items by one for each of `{entry, score}`. */
export function showNeighbours(list, found) {
  list.replaceChildren(...found.map(({ entry, score }) => item(entry, score)));
}

function item({ text, note, language, translation }, score) {
  const made = document.createElement("li");
  const bar = part("bar", "");
  bar.style.setProperty("--share", `${(100 * Math.max(0, score)).toFixed(1)}%`);
  const words = part("words", "");
  const sentence = part("text", text);
  if (language) sentence.lang = language;
  words.append(sentence);
  if (translation) words.append(part("translation faint", translation));
  made.append(part("number", formatted(score)), bar, words, part("note faint", note));
  return made;
}

function part(className, text) {
  const made = document.createElement("span");
  made.className = className;
  made.textContent = text;
  return made;
}
