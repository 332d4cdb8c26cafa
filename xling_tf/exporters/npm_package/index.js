// Loads the model of this package, in Node and in browsers, here or in a worker.

import { Encoder } from "./encoder.js";

// Written out, so that bundlers find the files.
const OWN = [
  new URL("./runtime.json", import.meta.url),
  new URL("./vocabulary.txt", import.meta.url),
  new URL("./model.safetensors", import.meta.url),
];
const METHODS = ["encode", "similarity", "probability", "semanticSearch"];
// A name in a variable: bundlers for browsers leave it alone.
const node = (name) => import(/* webpackIgnore: true */ /* @vite-ignore */ `node:${name}`);

/** Loads the model of this package, or the files in another folder, whose URL ends in "/". */
export async function load(folder) {
  const names = ["runtime.json", "vocabulary.txt", "model.safetensors"];
  const urls = folder === undefined ? OWN : names.map((name) => new URL(name, folder));
  const [settings, vocabulary, weights] = await Promise.all(urls.map(read));
  const text = new TextDecoder();
  return new Encoder(JSON.parse(text.decode(settings)), text.decode(vocabulary), weights);
}

/** Does as `load`, in a worker: the methods return promises, and `close` ends it. */
export async function loadInWorker(folder) {
  const url = new URL("./worker.js", import.meta.url);
  const isBrowser = typeof Worker !== "undefined";
  const worker = isBrowser
    ? new Worker(url, { type: "module" })
    : new (await node("worker_threads")).Worker(url);
  const waiting = new Map();
  let ended;
  const answer = ({ id, result, error }) => {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (error) reject(error);
    else resolve(result);
  };
  const end = (reason) => {
    ended ??= new Error(`the worker has ended: ${reason}`);
    for (const { reject } of waiting.values()) reject(ended);
    waiting.clear();
  };
  if (isBrowser) {
    worker.onmessage = (event) => answer(event.data);
    worker.onerror = (event) => end(event.message);
  } else {
    worker.on("message", answer).on("error", end).on("exit", end);
  }
  let calls = 0;
  const call = (method, ...values) =>
    new Promise((resolve, reject) => {
      if (ended) throw ended;
      waiting.set(++calls, { resolve, reject });
      worker.postMessage({ id: calls, method, values });
    });
  const model = { dim: await call("load", folder === undefined ? folder : String(folder)) };
  for (const method of METHODS) model[method] = (...values) => call(method, ...values);
  model.close = async () => {
    end("it was closed");
    await worker.terminate();
  };
  return model;
}

async function read(url) {
  if (url.protocol === "file:") {
    const { buffer, byteOffset, byteLength } = await (await node("fs/promises")).readFile(url);
    return buffer.slice(byteOffset, byteOffset + byteLength);
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} cannot be read: ${response.status}`);
  return response.arrayBuffer();
}

let own; // the model of this package, once it is asked for

async function call(method, ...values) {
  own ??= load().catch((error) => {
    own = undefined; // the next call tries again
    throw error;
  });
  return (await own)[method](...values);
}

/** Does as the `Encoder`'s method, with the model of this package. */
export const encode = (...values) => call("encode", ...values);

/** Does as the `Encoder`'s method, with the model of this package. */
export const similarity = (...values) => call("similarity", ...values);

/** Does as the `Encoder`'s method, with the model of this package. */
export const probability = (...values) => call("probability", ...values);

/** Does as the `Encoder`'s method, with the model of this package. */
export const semanticSearch = (...values) => call("semanticSearch", ...values);
