// Texts to vectors that average those of words, in plain JavaScript: what xling_tf's client computes
// with NumPy. It has no imports, because index.html contains it.

const MAX_RUNS = 100_000; // runs of characters whose words are kept
const MAX_SPELLED = 10_000; // words outside the vocabulary whose vectors are kept
// A text has at most this many times the bytes of its NFC: a decomposed "ΐ" has 3.5 times as many.
const MAX_EXPANSION = 4;
const ASCII = /^[\0-\x7f]*$/;
const PRINTABLE = /^[ -~]*$/;
const SURROGATES = /[\ud800-\udfff]/gu; // halves of pairs
// All but spaces, controls, halves of pairs and what is never drawn.
const VISIBLE =
  /[^\s\0-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\ud800-\udfff\u{e0000}-\u{e0fff}]/u;

// What may match, as in match.py of xling_tf's client.
const KINDS = ["same_meaning", "answer"];

const utf8 = new TextEncoder();

/** Averages the vectors of words: those of the vocabulary, and others by their n-grams. */
export class Encoder {
  #split;
  #ngrams;
  #rows;
  #weights;
  #match;
  #spelled = new Map();

  /**
   * @param {object} settings The content of runtime.json.
   * @param {string} vocabulary That of vocabulary.txt.
   * @param {ArrayBuffer} weights That of model.safetensors.
   */
  constructor(settings, vocabulary, weights) {
    if (settings.runtime !== "numpy" || settings.text.kind !== "words") {
      throw new Error("runtime.json must be that of an average of words; export the model again");
    }
    this.dim = settings.dim;
    this.#match = settings.match ?? {};
    this.#split = splitter(settings.text);
    this.#ngrams = settings.text.ngrams;
    this.#rows = new Map(vocabulary.split("\n").slice(0, -1).map((word, row) => [word, row]));
    const tensors = readTensors(weights);
    this.#weights = { ...tensors, words: table(tensors, "words", settings.bits) };
    if (this.#ngrams) {
      this.#weights.ngrams = table(tensors, "ngrams", settings.bits);
      // Row 0 is for n-grams that training did not see.
      const buckets = [...tensors.ngram_buckets];
      this.#weights.ngram_rows = new Map(buckets.map((bucket, row) => [Number(bucket), row + 1]));
    }
  }

  /** Returns the words of a text, at least one. */
  words(text) {
    return this.#split(encodable(text));
  }

  /** Returns the row of a word in the vocabulary, or -1. */
  row(word) {
    return this.#rows.get(word) ?? -1;
  }

  /** Returns the rows of a word's n-grams. */
  ngramRows(word) {
    const { sizes, max_characters: longest, num_buckets: count } = this.#ngrams;
    const characters = ["<", ...[...word].slice(0, longest), ">"];
    const rows = [];
    for (const size of sizes) {
      for (let start = 0; start + size <= characters.length; start++) {
        const hash = fingerprint(utf8.encode(characters.slice(start, start + size).join("")));
        rows.push(this.#weights.ngram_rows.get(Number(hash % BigInt(count))) ?? 0);
      }
    }
    return rows;
  }

  /** Returns a vector of unit length for each text; a blank text has zeros. */
  encode(texts) {
    const list = asTexts(texts, "texts");
    const all = new Float32Array(list.length * this.dim);
    const vectors = list.map((_, i) => all.subarray(i * this.dim, (i + 1) * this.dim));
    list.forEach((text, i) => this.#average(text, vectors[i]));
    return typeof texts === "string" ? vectors[0] : vectors;
  }

  /** Returns the cosine of two texts or vectors; a list in place of one has a row for each. */
  similarity(first, second) {
    const [one, other] = this.#sides(first, second, "first", "second");
    const rows = one.vectors.map((a) => other.vectors.map((b) => dot(a, b)));
    const columns = other.isOne ? rows.map((row) => row[0]) : rows;
    return one.isOne ? columns[0] : columns;
  }

  /** Returns the kinds of match whose probability the model has. */
  get kinds() {
    return KINDS.filter((kind) => this.#match[kind]);
  }

  /** Returns the probability that pairs match, a number if both are one; 0 with a blank text. */
  probability(texts1, texts2, { kind = "same_meaning", numCandidates = 1 } = {}) {
    requirePositive(numCandidates, "numCandidates");
    const likely = this.#likely(kind, numCandidates);
    const [first, second] = this.#sides(texts1, texts2, "texts1", "texts2");
    this.#requireWhole([first, second]);
    const [count, otherCount] = [first.vectors.length, second.vectors.length];
    if (!first.isOne && !second.isOne && count !== otherCount) {
      throw new TypeError(`texts1 and texts2 must be as many, but are ${count} and ${otherCount}`);
    }
    const several = first.isOne ? second : first;
    const pairs = several.vectors.map((_, i) => [
      first.vectors[first.isOne ? 0 : i],
      second.vectors[second.isOne ? 0 : i],
    ]);
    const numbers = pairs.map(([a, b]) => (isZero(a) || isZero(b) ? 0 : likely(dot(a, b))));
    return first.isOne && second.isOne ? numbers[0] : numbers;
  }

  /**
   * Returns what has the highest cosines to a query, or to each; blank texts match nothing. With
   * `minProbability`, hits have the probability that they answer the query, at least this one.
   */
  semanticSearch(queries, corpus, { topK = 10, minProbability } = {}) {
    requirePositive(topK, "topK");
    const [asked, texts] = this.#sides(queries, corpus, "queries", "corpus");
    let likely;
    if (minProbability !== undefined) {
      if (!(typeof minProbability === "number" && minProbability >= 0 && minProbability <= 1)) {
        const got = describe(minProbability);
        throw new RangeError(`minProbability must be a number from 0 to 1, got ${got}`);
      }
      likely = this.#likely("answer", Math.max(1, texts.vectors.length));
      this.#requireWhole([asked, texts]);
    }
    const hasText = texts.vectors.map((vector) => !isZero(vector));
    const hits = asked.vectors.map((query) => {
      const found = [];
      if (isZero(query)) return found;
      texts.vectors.forEach((vector, corpusId) => {
        if (!hasText[corpusId]) return;
        const score = dot(query, vector);
        if (found.length === topK && score <= found[topK - 1].score) return;
        let place = found.length;
        while (place && found[place - 1].score < score) place--;
        found.splice(place, 0, { corpusId, score });
        if (found.length > topK) found.pop();
      });
      if (!likely) return found;
      return found
        .map((hit) => ({ ...hit, probability: likely(hit.score) }))
        .filter((hit) => hit.probability >= minProbability);
    });
    return asked.isOne ? hits[0] : hits;
  }

  /** Returns the function from cosines to probabilities of a kind of match. */
  #likely(kind, numCandidates) {
    if (!KINDS.includes(kind)) {
      throw new RangeError(`kind must be one of ${KINDS.join(", ")}, got ${describe(kind)}`);
    }
    if (!this.#match[kind]) {
      throw new Error(
        `this model has no probability "${kind}"; add it with xling_tf.calibrate in Python, and ` +
          "export the model again",
      );
    }
    const [slope, intercept] = this.#match[kind];
    // The best of many wrong candidates has a higher cosine than the best of few.
    const logOfNumber = Math.log(numCandidates) / 2;
    return (cosine) => 1 / (1 + Math.exp(logOfNumber - intercept - slope * cosine));
  }

  #requireWhole(sides) {
    for (const { vectors } of sides) {
      const size = vectors.length ? vectors[0].length : this.dim;
      if (size !== this.dim) {
        throw new TypeError(
          `a probability needs all ${this.dim} numbers of the model's vectors, got ${size}`,
        );
      }
    }
  }

  #average(text, vector) {
    if (isBlank(text)) return;
    const sums = new Float64Array(this.#weights.unknown_bias.length);
    for (const word of this.#split(text)) {
      const row = this.#rows.get(word);
      if (row !== undefined) {
        this.#weights.words.add(row, sums);
      } else {
        const numbers = this.#spell(word);
        for (let i = 0; i < sums.length; i++) sums[i] += numbers[i];
      }
    }
    let squares = 0;
    for (const number of sums) squares += number * number;
    const length = Math.sqrt(Math.max(squares, 1e-24));
    for (let i = 0; i < sums.length; i++) vector[i] = sums[i] / length;
  }

  #spell(word) {
    const weights = this.#weights;
    if (!this.#ngrams) return weights.unknown_bias;
    let vector = this.#spelled.get(word);
    if (!vector) {
      const sums = new Float64Array(weights.ngram_bias.length);
      for (const row of this.ngramRows(word)) weights.ngrams.add(row, sums);
      const hidden = affine(sums, weights.ngram_kernel, weights.ngram_bias).map(Math.tanh);
      vector = affine(hidden, weights.unknown_kernel, weights.unknown_bias);
      if (this.#spelled.size >= MAX_SPELLED) this.#spelled.clear();
      this.#spelled.set(word, vector);
    }
    return vector;
  }

  /** Returns unit vectors of two arguments, which may be texts or vectors. */
  #sides(first, second, name, otherName) {
    const sides = [this.#vectors(first, name), this.#vectors(second, otherName)];
    const [size, otherSize] = sides.map(({ vectors }) => vectors[0]?.length);
    if (size !== otherSize && size !== undefined && otherSize !== undefined) {
      throw new TypeError(
        `${name} and ${otherName} must have equal dimensions, but ${name} have ${size} and ` +
          `${otherName} ${otherSize}; encode both with one model`,
      );
    }
    return sides;
  }

  #vectors(values, name) {
    const isOne = typeof values === "string" || isVector(values);
    const list = isOne ? [values] : values;
    if (Array.isArray(list) && list.length && list.every(isVector)) {
      if (list.some((vector) => vector.length !== list[0].length)) {
        throw new TypeError(`${name} must be vectors of one length, but are not`);
      }
      return { isOne, vectors: list.map((vector, i) => unit(vector, `${name}[${i}]`)) };
    }
    return { isOne, vectors: this.encode(asTexts(list, name)) };
  }
}

/** True for a text without a visible character. */
export function isBlank(text) {
  return !VISIBLE.test(text);
}

function asTexts(texts, name) {
  if (typeof texts === "string") return [encodable(texts)];
  if (!Array.isArray(texts)) {
    throw new TypeError(`${name} must be a string or an array of strings, but got ${describe(texts)}`);
  }
  return Array.from(texts, (text, i) => {
    if (typeof text === "string") return encodable(text);
    throw new TypeError(
      `${name} must be strings, but ${name}[${i}] is ${describe(text)}; flatten nested arrays, ` +
        "fill in or drop missing values, and convert others with String(value)",
    );
  });
}

function encodable(text) {
  return ASCII.test(text) ? text : text.replace(SURROGATES, " ");
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
  const read = ({ dtype, data_offsets: [begin, end] }) => {
    const [Numbers, first] = [kinds[dtype], start + begin];
    const size = Numbers.BYTES_PER_ELEMENT;
    // A view must begin at a multiple of its numbers' size.
    if (first % size) return new Numbers(buffer.slice(first, start + end));
    return new Numbers(buffer, first, (end - begin) / size);
  };
  return Object.fromEntries(Object.entries(header).map(([name, about]) => [name, read(about)]));
}

/** Returns a table of rows of 8-bit or 4-bit numbers, each row with a scale. */
function table(tensors, name, bits = 8) {
  const [numbers, scales] = [tensors[name], tensors[`${name}_scales`]];
  const width = numbers.length / scales.length; // bytes of a row
  if (bits === 8) {
    return {
      add(row, sums) {
        const [scale, start] = [scales[row], row * width];
        for (let i = 0; i < width; i++) sums[i] += numbers[start + i] * scale;
      },
    };
  }
  return {
    add(row, sums) {
      // The lower half of a byte is the first of two numbers; 0 to 15 stand for -8 to 7.
      const [scale, start] = [scales[row], row * width];
      for (let i = 0; i < width; i++) {
        const pair = numbers[start + i];
        sums[2 * i] += ((pair & 15) - 8) * scale;
        sums[2 * i + 1] += ((pair >> 4) - 8) * scale;
      }
    },
  };
}

/** Returns a function from a text to its words, by the rules of runtime.json's "text". */
function splitter(settings) {
  const point = (number) => `\\u{${number.toString(16)}}`;
  const classes = Object.entries(settings.classes).map(([name, ranges]) => [
    name,
    ranges.map(([first, last]) => `${point(first)}-${point(last)}`).join(""),
  ]);
  const compiled = ([pattern, replacement]) => {
    const ignoresCase = pattern.startsWith("(?i)");
    let source = ignoresCase ? pattern.slice(4) : pattern;
    for (const [name, ranges] of classes) source = source.replaceAll(name, ranges);
    const groups = replacement.replaceAll("$", "$$$$").replace(/\\(\d)/g, "$$$1");
    return [new RegExp(source, ignoresCase ? "giu" : "gu"), groups];
  };
  const apply = (rules, text) =>
    rules.reduce((changed, [pattern, groups]) => changed.replace(pattern, groups), text);
  const rules = settings.rules.map(compiled);
  // The first rules make spaces; after them, each run of other characters can be split alone.
  const textRules = rules.splice(0, settings.text_rules ?? 1);
  const known = new Map();
  const wordsOf = (run) => {
    let words = known.get(run);
    if (!words) {
      words = apply(rules, run).split(" ").filter(Boolean);
      if (known.size >= MAX_RUNS) known.clear();
      known.set(run, words);
    }
    return words;
  };
  return (text) => {
    let spaced = readable(text, settings.max_bytes);
    if (settings.lowercase) spaced = spaced.toLowerCase();
    if (!PRINTABLE.test(spaced)) spaced = apply(textRules, spaced);
    const words = [];
    for (const run of spaced.split(" ")) {
      if (run) words.push(...wordsOf(run));
      if (words.length >= settings.max_tokens) break;
    }
    return words.length ? words.slice(0, settings.max_tokens) : [settings.empty];
  };
}

/** Returns a text in NFC, cut after `maxBytes` of its UTF-8. */
function readable(text, maxBytes) {
  if (ASCII.test(text)) return text.slice(0, maxBytes);
  return firstBytes(firstBytes(text, MAX_EXPANSION * maxBytes).normalize("NFC"), maxBytes);
}

/** Cuts a text after `maxBytes` of its UTF-8, with a space for an incomplete character. */
function firstBytes(text, maxBytes) {
  if (3 * text.length <= maxBytes) return text;
  const { read, written } = utf8.encodeInto(text, new Uint8Array(maxBytes));
  return text.slice(0, read) + (read < text.length && written < maxBytes ? " " : "");
}

// FarmHash's Fingerprint64 (farmhashna::Hash64 of https://github.com/google/farmhash) of up to 64
// bytes: n-grams of more than 16 characters are not exported.
const [K0, K1, K2] = [0xc3a5c85c97cb3127n, 0xb492b66fbe98f273n, 0x9ae16a3b2f90404fn];

const cut = (number) => BigInt.asUintN(64, number);
const shifted = (number) => cut(number) ^ (cut(number) >> 47n);
const rotated = (number, bits) => (cut(number) >> bits) | cut(number << (64n - bits));

function mixed(first, second, factor) {
  const half = shifted((first ^ second) * factor);
  return cut(shifted((second ^ half) * factor) * factor);
}

/** Computes FarmHash's Fingerprint64 of at most 64 bytes. */
export function fingerprint(bytes) {
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
