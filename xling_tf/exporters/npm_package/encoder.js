// Texts to vectors that average those of words, in plain JavaScript: what xling_tf's client computes
// with NumPy. It has no imports, because index.html contains it. index.d.ts describes the methods.

/** The files of a model. */
export const FILES = ["runtime.json", "vocabulary.txt", "model.safetensors"];

const MAX_RUNS = 100_000; // runs of characters whose words are kept
const MAX_SPELLED = 10_000; // words outside the vocabulary whose vectors are kept
// A text has at most this many times the bytes of its NFC: a decomposed "ΐ" has 3.5 times as many.
const MAX_EXPANSION = 4;
const PRINTABLE = /^[ -~]*$/;
const SURROGATES = /[\ud800-\udfff]/gu; // halves of pairs
// All but spaces, controls, halves of pairs and what is never drawn.
const VISIBLE =
  /[^\s\0-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\ud800-\udfff\u{e0000}-\u{e0fff}]/u;

const utf8 = new TextEncoder();

/** Averages the vectors of words: those of the vocabulary, and others by their n-grams. */
export class Encoder {
  #settings;
  #rows;
  #weights;
  #addWord;
  #addNgram;
  #ngramRows;
  #spelled = cached(MAX_SPELLED, (word) => this.#spell(word));

  /** Takes the contents of `FILES`, as one `ArrayBuffer` each. */
  constructor(...contents) {
    const [json, vocabulary] = contents.slice(0, 2).map((file) => new TextDecoder().decode(file));
    const settings = JSON.parse(json);
    if (settings.runtime !== "numpy" || settings.text.kind !== "words") {
      throw new Error("runtime.json must be that of an average of words; export the model again");
    }
    this.#settings = settings;
    this.dim = settings.dim;
    this.kinds = Object.keys(settings.match ?? {});
    this.words = splitter(settings.text);
    this.#rows = new Map(vocabulary.split("\n").slice(0, -1).map((word, row) => [word, row]));
    this.#weights = readTensors(contents[2]);
    this.#addWord = table(this.#weights, "words", settings.bits);
    if (settings.text.ngrams) {
      this.#addNgram = table(this.#weights, "ngrams", settings.bits);
      // Row 0 is for n-grams that training did not see.
      const buckets = [...this.#weights.ngram_buckets];
      this.#ngramRows = new Map(buckets.map((bucket, row) => [bucket, row + 1]));
    }
  }

  row(word) {
    return this.#rows.get(word) ?? -1;
  }

  ngramRows(word) {
    const { sizes, max_characters: longest, num_buckets: count } = this.#settings.text.ngrams;
    const characters = ["<", ...[...word].slice(0, longest), ">"];
    const rows = [];
    for (const size of sizes) {
      for (let start = 0; start + size <= characters.length; start++) {
        const hash = fingerprint(utf8.encode(characters.slice(start, start + size).join("")));
        rows.push(this.#ngramRows.get(hash % BigInt(count)) ?? 0);
      }
    }
    return rows;
  }

  encode(texts) {
    const vectors = asTexts(texts, "texts").map((text) => this.#average(text));
    return typeof texts === "string" ? vectors[0] : vectors;
  }

  similarity(first, second) {
    const [one, other] = this.#sides({ first, second });
    return one.map((a) => other.map((b) => dot(a, b)));
  }

  probability(texts1, texts2, { kind = "same_meaning", numCandidates = 1 } = {}) {
    requirePositive(numCandidates, "numCandidates");
    const likely = this.#likely(kind, numCandidates);
    const sides = this.#sides({ texts1, texts2 }, true);
    const several = sides.filter(({ isOne }) => !isOne);
    const counts = several.map(({ vectors }) => vectors.length);
    if (counts[0] !== counts.at(-1)) {
      throw new TypeError(`texts1 and texts2 must be as many, but are ${counts.join(" and ")}`);
    }
    return (several[0] ?? sides[0]).map((_, i) => {
      const [a, b] = sides.map(({ isOne, vectors }) => vectors[isOne ? 0 : i]);
      return isZero(a) || isZero(b) ? 0 : likely(dot(a, b));
    });
  }

  semanticSearch(queries, corpus, { topK = 10, minProbability } = {}) {
    requirePositive(topK, "topK");
    const isFiltered = minProbability !== undefined;
    const isNumber = Number.isFinite(minProbability);
    if (isFiltered && !(isNumber && minProbability >= 0 && minProbability <= 1)) {
      const got = describe(minProbability);
      throw new RangeError(`minProbability must be a number from 0 to 1, got ${got}`);
    }
    const [asked, { vectors }] = this.#sides({ queries, corpus }, isFiltered);
    const likely = isFiltered && this.#likely("answer", Math.max(1, vectors.length));
    return asked.map((query) => {
      const found = nearest(query, vectors, topK);
      if (!isFiltered) return found;
      return found
        .map((hit) => ({ ...hit, probability: likely(hit.score) }))
        .filter((hit) => hit.probability >= minProbability);
    });
  }

  /** Returns the function from cosines to probabilities of a kind of match. */
  #likely(kind, numCandidates) {
    if (!this.kinds.includes(kind)) {
      throw new RangeError(
        `this model has no probability "${kind}", but ${this.kinds.join(", ") || "none"}; add it ` +
          "with xling_tf.calibrate in Python, and export the model again",
      );
    }
    const [slope, intercept] = this.#settings.match[kind];
    // The best of many wrong candidates has a higher cosine than the best of few.
    const logOfNumber = Math.log(numCandidates) / 2;
    return (cosine) => 1 / (1 + Math.exp(logOfNumber - intercept - slope * cosine));
  }

  #average(text) {
    const vector = new Float32Array(this.dim);
    if (isBlank(text)) return vector;
    const sums = new Float64Array(this.#weights.unknown_bias.length);
    for (const word of this.words(text)) {
      const row = this.#rows.get(word);
      if (row !== undefined) {
        this.#addWord(row, sums);
      } else {
        const numbers = this.#spelled(word);
        for (let i = 0; i < sums.length; i++) sums[i] += numbers[i];
      }
    }
    const length = Math.sqrt(Math.max(dot(sums, sums), 1e-24));
    for (let i = 0; i < sums.length; i++) vector[i] = sums[i] / length;
    return vector;
  }

  #spell(word) {
    const weights = this.#weights;
    if (!this.#ngramRows) return weights.unknown_bias;
    const sums = new Float64Array(weights.ngram_bias.length);
    for (const row of this.ngramRows(word)) this.#addNgram(row, sums);
    const hidden = affine(sums, weights.ngram_kernel, weights.ngram_bias).map(Math.tanh);
    return affine(hidden, weights.unknown_kernel, weights.unknown_bias);
  }

  /** Returns unit vectors of two named arguments, each of which may be texts or vectors. */
  #sides(byName, areWhole = false) {
    const sides = Object.entries(byName).map(([name, values]) => this.#vectors(values, name));
    const lengths = new Set(sides.flatMap(({ vectors }) => vectors.map(({ length }) => length)));
    if (lengths.size > 1 || (areWhole && lengths.size && !lengths.has(this.dim))) {
      const expected = areWhole ? `with all ${this.dim} numbers` : "of one length";
      throw new TypeError(
        `${Object.keys(byName).join(" and ")} must be vectors ${expected}, but have ` +
          `${[...lengths].join(" and ")} numbers; encode both with one model`,
      );
    }
    return sides;
  }

  #vectors(values, name) {
    const isOne = typeof values === "string" || isVector(values);
    const list = isOne ? [values] : values;
    const areVectors = Array.isArray(list) && list.length && list.every(isVector);
    const vectors = areVectors
      ? list.map((vector, i) => unit(vector, `${name}[${i}]`))
      : asTexts(list, name).map((text) => this.#average(text));
    // One result for one text or vector, a list for a list.
    const map = (compute) => (isOne ? compute(vectors[0], 0) : vectors.map(compute));
    return { isOne, vectors, map };
  }
}

/** Returns the `topK` vectors with the largest products, best first; zeros are no hits. */
function nearest(query, vectors, topK) {
  const found = [];
  if (isZero(query)) return found;
  vectors.forEach((vector, corpusId) => {
    const score = dot(query, vector);
    if ((found.length === topK && score <= found[topK - 1].score) || isZero(vector)) return;
    const place = found.findLastIndex((hit) => hit.score >= score) + 1;
    found.splice(place, 0, { corpusId, score });
    if (found.length > topK) found.pop();
  });
  return found;
}

/** Returns a function that keeps up to `size` results, and then forgets them all. */
function cached(size, compute) {
  const known = new Map();
  return (key) => {
    let value = known.get(key);
    if (value === undefined) {
      value = compute(key);
      if (known.size >= size) known.clear();
      known.set(key, value);
    }
    return value;
  };
}

/** True for a text without a visible character. */
export function isBlank(text) {
  return !VISIBLE.test(text);
}

function asTexts(texts, name) {
  if (typeof texts === "string") return [texts];
  if (!Array.isArray(texts)) {
    const got = describe(texts);
    throw new TypeError(`${name} must be a string or an array of strings, but got ${got}`);
  }
  const wrong = texts.findIndex((text) => typeof text !== "string");
  if (wrong < 0) return texts;
  throw new TypeError(
    `${name} must be strings, but ${name}[${wrong}] is ${describe(texts[wrong])}; flatten nested ` +
      "arrays, fill in or drop missing values, and convert others with String(value)",
  );
}

function describe(value) {
  if (typeof value !== "object") return `${typeof value} ${String(value).slice(0, 80)}`;
  return value === null ? "null" : `an object of the class ${value.constructor?.name}`;
}

function requirePositive(value, name) {
  if (!Number.isInteger(value) || value < 1) {
    throw new RangeError(`${name} must be an integer of at least 1, got ${describe(value)}`);
  }
}

function isZero(vector) {
  return !vector.some((number) => number);
}

function isVector(value) {
  const isNumbers = ArrayBuffer.isView(value) && !(value instanceof DataView);
  return isNumbers || (Array.isArray(value) && value.length > 0 && typeof value[0] === "number");
}

function unit(vector, name) {
  const length = Math.sqrt(dot(vector, vector));
  if (!Number.isFinite(length)) {
    throw new TypeError(`${name} must be a finite vector, but has infinity, NaN or no number`);
  }
  if (Math.abs(length - 1) <= 1e-6 || !length) return vector;
  return Float64Array.from(vector, (number) => number / length);
}

function dot(first, second) {
  let sum = 0;
  for (let i = 0; i < first.length; i++) sum += first[i] * second[i];
  return sum;
}

/** Returns `vector @ kernel + bias`. */
function affine(vector, kernel, bias) {
  const sums = Float64Array.from(bias);
  const width = sums.length;
  let i = 0;
  // Four rows at a time take a third of the time.
  for (; i + 4 <= vector.length; i += 4) {
    const [a, b, c, d] = vector.subarray(i, i + 4);
    for (let j = 0, at = i * width; j < width; j++, at++) {
      const last = at + 2 * width;
      sums[j] += a * kernel[at] + b * kernel[at + width] + c * kernel[last] + d * kernel[last + width];
    }
  }
  for (; i < vector.length; i++) {
    for (let j = 0; j < width; j++) sums[j] += vector[i] * kernel[i * width + j];
  }
  return sums;
}

/** Returns the tensors of a safetensors file by name. */
function readTensors(buffer) {
  const kinds = { F32: Float32Array, I8: Int8Array, U8: Uint8Array, I64: BigInt64Array };
  const start = 8 + Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, start - 8)));
  delete header.__metadata__;
  // Copies, because a view must begin at a multiple of its numbers' size.
  const read = ({ dtype, data_offsets: [begin, end] }) =>
    new kinds[dtype](buffer.slice(start + begin, start + end));
  return Object.fromEntries(Object.entries(header).map(([name, about]) => [name, read(about)]));
}

/** Returns a function that adds a row of a table, of 8-bit or 4-bit numbers, to sums. */
function table(tensors, name, bits) {
  const [numbers, scales] = [tensors[name], tensors[`${name}_scales`]];
  const width = numbers.length / scales.length; // bytes of a row
  return (row, sums) => {
    const [scale, start] = [scales[row], row * width];
    for (let i = 0; i < width; i++) {
      const byte = numbers[start + i];
      if (bits === 8) {
        sums[i] += byte * scale;
      } else {
        // The lower half of a byte is the first of two numbers; 0 to 15 stand for -8 to 7.
        sums[2 * i] += ((byte & 15) - 8) * scale;
        sums[2 * i + 1] += ((byte >> 4) - 8) * scale;
      }
    }
  };
}

/** Returns a function from a text to its words, by the rules of runtime.json's "text". */
function splitter(settings) {
  const point = (number) => `\\u{${number.toString(16)}}`;
  const ranges = (pairs) => pairs.map((pair) => pair.map(point).join("-")).join("");
  const compiled = ([pattern, replacement]) => {
    const ignoresCase = pattern.startsWith("(?i)");
    let source = ignoresCase ? pattern.slice(4) : pattern;
    for (const [name, pairs] of Object.entries(settings.classes)) {
      source = source.replaceAll(name, ranges(pairs));
    }
    const groups = replacement.replaceAll("$", "$$$$").replace(/\\(\d)/g, "$$$1");
    return [new RegExp(source, ignoresCase ? "giu" : "gu"), groups];
  };
  const apply = (rules, text) =>
    rules.reduce((changed, [pattern, groups]) => changed.replace(pattern, groups), text);
  const rules = settings.rules.map(compiled);
  // The first rules make spaces; after them, each run of other characters can be split alone.
  const textRules = rules.splice(0, settings.text_rules);
  const wordsOf = cached(MAX_RUNS, (run) => apply(rules, run).split(" ").filter(Boolean));
  return (text) => {
    let spaced = readable(text, settings.max_bytes);
    if (settings.lowercase) spaced = spaced.toLowerCase();
    if (!PRINTABLE.test(spaced)) spaced = apply(textRules, spaced);
    const words = [];
    for (const run of spaced.split(" ")) words.push(...wordsOf(run));
    return words.length ? words.slice(0, settings.max_tokens) : [settings.empty];
  };
}

/** Returns a text in NFC, cut after `maxBytes` of its UTF-8, with spaces for halves of pairs. */
function readable(text, maxBytes) {
  const encodable = text.replace(SURROGATES, " ");
  return firstBytes(firstBytes(encodable, MAX_EXPANSION * maxBytes).normalize("NFC"), maxBytes);
}

/** Cuts a text after `maxBytes` of its UTF-8, with a space for an incomplete character. */
function firstBytes(text, maxBytes) {
  if (3 * text.length <= maxBytes) return text;
  const { read, written } = utf8.encodeInto(text, new Uint8Array(maxBytes));
  return text.slice(0, read) + (read < text.length && written < maxBytes ? " " : "");
}

const [K0, K1, K2] = [0xc3a5c85c97cb3127n, 0xb492b66fbe98f273n, 0x9ae16a3b2f90404fn];

const cut = (number) => BigInt.asUintN(64, number);
const shifted = (number) => cut(number) ^ (cut(number) >> 47n);
const rotated = (number, bits) => (cut(number) >> bits) | cut(number << (64n - bits));

function mixed(first, second, factor) {
  const half = shifted((first ^ second) * factor);
  return cut(shifted((second ^ half) * factor) * factor);
}

// FarmHash's Fingerprint64 (farmhashna::Hash64 of https://github.com/google/farmhash) of up to 64
// bytes: n-grams of more than 16 characters are not exported.
function fingerprint(bytes) {
  const size = bytes.length;
  const view = new DataView(bytes.buffer, bytes.byteOffset, size);
  const word = (start) => view.getBigUint64(start < 0 ? size + start : start, true);
  const factor = K2 + 2n * BigInt(size);
  if (size > 16) {
    const [a, b] = [word(0) * (size <= 32 ? K1 : K2), word(8)];
    const [c, d] = [word(-8) * factor, word(-16) * K2];
    const left = rotated(a + b, 43n) + rotated(c, 30n) + d;
    const half = mixed(left, a + rotated(b + K2, 18n) + c, factor);
    if (size <= 32) return half;
    const [e, f] = [word(16) * factor, word(24)];
    const [g, h] = [(left + word(-32)) * factor, (half + word(-24)) * factor];
    const last = rotated(e + f, 43n) + rotated(g, 30n) + h;
    return mixed(last, e + rotated(f + a, 18n) + g, factor);
  }
  if (size >= 8) {
    const [first, last] = [word(0) + K2, word(-8)];
    const left = rotated(last, 37n) * factor + first;
    return mixed(left, (rotated(first, 25n) + last) * factor, factor);
  }
  if (size >= 4) {
    const [first, last] = [view.getUint32(0, true), view.getUint32(size - 4, true)];
    return mixed(BigInt(size) + (BigInt(first) << 3n), BigInt(last), factor);
  }
  if (!size) return K2;
  const first = BigInt(bytes[0] + (bytes[size >> 1] << 8));
  const last = BigInt(size + (bytes[size - 1] << 2));
  return cut(shifted((first * K2) ^ (last * K0)) * K2);
}
