// The server's REST API: which models there are, and texts to vectors.

const BATCH = 64;
const TRIES = 6;
const BUSY = new Set([429, 503]);
const LONGEST_WAIT = 10;
const TIME_LIMIT = 120_000;

/** A mistake or a failure, in words for the person at the page. */
export class Told extends Error {}

/** The models, each with what it can do: `{name, error, sentences, questions, answers}`. */
export async function fetchModels() {
  const { models } = await readJson(await ask("demo/models"));
  return models.map(({ name, error, signatures }) => ({
    name,
    error,
    ...rolesOf(signatures),
  }));
}

/** Which signature encodes sentences, questions and answers; undefined where none does. */
function rolesOf(signatures) {
  const hasOne = (inputs) => inputs.length === 1;
  const hasContext = (inputs) => [...inputs].sort().join() === "context,input";
  const choose = (names, fits) => {
    const name = names.find((each) => signatures[each]?.outputs.length && fits(signatures[each].inputs));
    return name && { name, ...signatures[name] };
  };
  return {
    sentences: choose(["serving_default", "default", ...Object.keys(signatures)], hasOne),
    questions: choose(["question_encoder"], hasOne),
    answers: choose(["response_encoder"], (inputs) => hasOne(inputs) || hasContext(inputs)),
  };
}

/**
 * Encodes texts, a batch at a time.
 *
 * @param {{name: string}} model
 * @param {{name: string, inputs: string[], outputs: string[]}} signature
 * @param {string[]} texts
 * @param {AbortSignal} signal
 * @param {{onWait?: (message: string) => void, onBatch?: (vectors: Float32Array[]) => void}} listeners
 * @returns {Promise<Float32Array[]>} One vector a text, of unit length.
 */
export async function encode(model, signature, texts, signal, { onWait, onBatch } = {}) {
  const vectors = [];
  for (let start = 0; start < texts.length; start += BATCH) {
    const batch = texts.slice(start, start + BATCH);
    const predictions = await predict(model, signature, batch, signal, onWait);
    signal.throwIfAborted();
    const made = predictions.map((prediction) => toVector(prediction, model, signature));
    if (made.length !== batch.length) {
      throw new Told(`${batch.length} texts were sent to ${model.name}, and ${made.length} vectors came back.`);
    }
    vectors.push(...made);
    onBatch?.(made);
  }
  return vectors;
}

async function predict(model, signature, texts, signal, onWait) {
  const [only, ...others] = signature.inputs;
  // An answer is its own context, as the published module's page advises for answers without one.
  const instances = others.length ? texts.map((text) => ({ input: text, context: text })) : texts;
  const path = `v1/models/${encodeURIComponent(model.name)}:predict`;
  const request = {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ signature_name: signature.name, instances }),
  };
  for (let attempt = 1; ; attempt++) {
    const response = await ask(path, request, signal);
    if (response.ok) return (await readJson(response)).predictions ?? [];
    if (!BUSY.has(response.status) || attempt === TRIES) throw await refusal(response, model);
    const seconds = waitingTime(response, attempt);
    onWait?.(`The server is busy (${response.status}). Trying again in ${seconds.toFixed(1)} s, ${attempt} of ${TRIES - 1}.`);
    await sleep(1000 * seconds, signal);
  }
}

async function ask(path, request = {}, signal = undefined) {
  const limit = AbortSignal.timeout(TIME_LIMIT);
  try {
    return await fetch(path, { ...request, signal: signal ? AbortSignal.any([signal, limit]) : limit });
  } catch (error) {
    if (signal?.aborted) throw error;
    if (limit.aborted) throw new Told(`The server has not answered for ${TIME_LIMIT / 60_000} minutes.`);
    throw new Told("The server cannot be reached. Is it still running? Start it and try again.");
  }
}

async function readJson(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Told("The server's answer broke off or is not JSON. Is something between it and this page?");
  }
}

async function refusal(response, model) {
  const { error } = await readJson(response).catch(() => ({}));
  const reason = error ? `: ${error}` : ".";
  if (BUSY.has(response.status)) {
    return new Told(`The server is too busy (${response.status}); wait a little and try again${reason}`);
  }
  const what = response.status < 500 ? "refused the request" : "failed";
  return new Told(`Model ${model.name} ${what} (${response.status})${reason}`);
}

/** Seconds: what the server asks for, or longer after each attempt, never the same for two pages. */
function waitingTime(response, attempt) {
  const asked = parseFloat(response.headers.get("Retry-After"));
  const seconds = asked >= 0 ? asked : 0.25 * 2 ** attempt * (0.75 + 0.5 * Math.random());
  return Math.min(seconds, LONGEST_WAIT);
}

function sleep(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}

function toVector(prediction, model, signature) {
  const name = signature.outputs.includes("outputs") ? "outputs" : signature.outputs[0];
  const numbers = Array.isArray(prediction) ? prediction : prediction?.[name];
  if (!Array.isArray(numbers) || !numbers.length || !numbers.every(Number.isFinite)) {
    throw new Told(`Signature ${signature.name} of model ${model.name} does not give vectors; choose another model.`);
  }
  const length = Math.hypot(...numbers) || 1;
  return Float32Array.from(numbers, (number) => number / length);
}

/** The cosine of two vectors of unit length. */
export function cosine(one, other) {
  let sum = 0;
  for (let i = 0; i < one.length; i++) sum += one[i] * other[i];
  return Math.max(-1, Math.min(1, sum));
}

/** Two decimals with a true minus sign. */
export function formatted(score) {
  const text = Math.abs(score).toFixed(2);
  return score < 0 && text !== "0.00" ? `−${text}` : text;
}
