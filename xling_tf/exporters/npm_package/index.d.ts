/** A vector: of unit length if it is from a model. */
export type Vector = Float32Array | Float64Array | readonly number[];
/** One text or vector. */
export type One = string | Vector;
/** Several texts, or several vectors. */
export type Several = readonly string[] | readonly Vector[];

/** A search result: its index in the corpus, its cosine from -1 to 1, and on request its probability. */
export interface Hit {
  corpusId: number;
  score: number;
  probability?: number;
}

/** What may match: two texts that mean the same, or a query and the document that answers it. */
export type Kind = "same_meaning" | "answer";

export interface MatchOptions {
  /** Default "same_meaning"; with "answer", the first texts are queries and the second ones documents. */
  kind?: Kind;
  /** Number of texts with which the first text of a pair was compared; default 1, for a pair alone. */
  numCandidates?: number;
}

export interface SearchOptions {
  /** Maximum number of hits for each query; default 10. */
  topK?: number;
  /** Smallest probability that a hit answers the query, from 0 to 1; default: all hits, without it. */
  minProbability?: number;
}

/** A model that was loaded. */
export interface Encoder {
  /** Number of numbers in a vector. */
  readonly dim: number;
  /** Returns a vector of unit length for each text; a text without a visible character has zeros. */
  encode(text: string): Float32Array;
  encode(texts: readonly string[]): Float32Array[];
  /** Returns the cosine of two texts or vectors; a list in place of one has a row for each. */
  similarity(first: One, second: One): number;
  similarity(first: One, second: Several): number[];
  similarity(first: Several, second: One): number[];
  similarity(first: Several, second: Several): number[][];
  /** The kinds of match whose probability the model has. */
  readonly kinds: Kind[];
  /** Returns the probability that pairs match, assuming that half of them do; 0 with a blank text. */
  probability(text1: One, text2: One, options?: MatchOptions): number;
  probability(texts1: Several, texts2: One | Several, options?: MatchOptions): number[];
  probability(text1: One, texts2: Several, options?: MatchOptions): number[];
  /** Returns what has the highest cosines to a query, or to each, best first; blank texts match nothing. */
  semanticSearch(query: One, corpus: One | Several, options?: SearchOptions): Hit[];
  semanticSearch(queries: Several, corpus: One | Several, options?: SearchOptions): Hit[][];
  /** Returns the words of a text, at least one. */
  words(text: string): string[];
  /** Returns the row of a word in the vocabulary, or -1. */
  row(word: string): number;
  /** Returns the rows of a word's character n-grams. */
  ngramRows(word: string): number[];
}

/** A model in a worker. */
export interface WorkerEncoder {
  readonly dim: number;
  encode(text: string): Promise<Float32Array>;
  encode(texts: readonly string[]): Promise<Float32Array[]>;
  similarity(first: One, second: One): Promise<number>;
  similarity(first: One, second: Several): Promise<number[]>;
  similarity(first: Several, second: One): Promise<number[]>;
  similarity(first: Several, second: Several): Promise<number[][]>;
  probability(text1: One, text2: One, options?: MatchOptions): Promise<number>;
  probability(texts1: Several, texts2: One | Several, options?: MatchOptions): Promise<number[]>;
  probability(text1: One, texts2: Several, options?: MatchOptions): Promise<number[]>;
  semanticSearch(query: One, corpus: One | Several, options?: SearchOptions): Promise<Hit[]>;
  semanticSearch(queries: Several, corpus: One | Several, options?: SearchOptions): Promise<Hit[][]>;
  /** Ends the worker; calls that it has not answered are rejected. */
  close(): Promise<void>;
}

/** Loads the model of this package, or the files in another folder, whose URL ends in "/". */
export declare function load(folder?: string | URL): Promise<Encoder>;
/** Does as `load`, in a worker of the browser or of Node. */
export declare function loadInWorker(folder?: string | URL): Promise<WorkerEncoder>;

/** Each does as the `Encoder`'s method, with the model of this package, which the first call loads. */
export declare const encode: WorkerEncoder["encode"];
export declare const similarity: WorkerEncoder["similarity"];
export declare const probability: WorkerEncoder["probability"];
export declare const semanticSearch: WorkerEncoder["semanticSearch"];
