// Loads the model of this package, in Node and in browsers, here or in a worker.

import { Encoder, FILES } from "./encoder.js";

// Written out, so that bundlers find the files.
const OWN = [
  new URL("./runtime.json", import.meta.url),
  new URL("./vocabulary.txt", import.meta.url),
  new URL("./model.safetensors", import.meta.url),
];
const METHODS = ["encode", "similarity", "probability", "semanticSearch"];
const methods = (call) =>
  Object.fromEntries(METHODS.map((name) => [name, (...values) => call(name, ...values)]));
// A name in a variable: bundlers for browsers leave it alone.
const node = (name) => import(/* webpackIgnore: true */ /* @vite-ignore */ `node:${name}`);

/** Loads the model of this package, or the files in another folder, whose URL ends in "/". */
export async function load(folder) {
  const urls = folder === undefined ? OWN : FILES.map((name) => new URL(name, folder));
  return new Encoder(...(await Promise.all(urls.map(read))));
}

/** Does as `load`, in a worker: the methods return promises, and `close` ends it. */
export async function loadInWorker(folder) {
  const url = new URL("./worker.js", import.meta.url);
  const Kind = globalThis.Worker ?? (await node("worker_threads")).Worker;
  const worker = new Kind(url, { type: "module" });
  const waiting = []; // calls, which the worker answers in their order
  let ended;
  const answer = ({ result, error }) => {
    const call = waiting.shift(); // undefined for an answer after `close`
    if (error) call?.reject(error);
    else call?.resolve(result);
  };
  const end = (reason) => {
    ended ??= new Error(`the worker has ended: ${reason}`);
    for (const { reject } of waiting.splice(0)) reject(ended);
  };
  if (worker.on) {
    worker.on("message", answer).on("error", end).on("exit", end); // Node's
  } else {
    worker.onmessage = (event) => answer(event.data);
    worker.onerror = (event) => end(event.message);
  }
  const call = (method, ...values) =>
    new Promise((resolve, reject) => {
      if (ended) throw ended;
      worker.postMessage({ method, values });
      waiting.push({ resolve, reject });
    });
  const close = async () => {
    end("it was closed");
    await worker.terminate();
  };
  const dim = await call("load", folder === undefined ? folder : String(folder)).catch((error) => {
    close(); // without a model, it would run forever
    throw error;
  });
  return { dim, ...methods(call), close };
}

async function read(url) {
  if (url.protocol === "file:") {
    return new Uint8Array(await (await node("fs/promises")).readFile(url)).buffer;
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} cannot be read: ${response.status}`);
  return response.arrayBuffer();
}

let own; // the model of this package, once it is asked for

export const { encode, similarity, probability, semanticSearch } = methods(
  async (method, ...values) => {
    own ??= load();
    own.catch(() => (own = undefined)); // the next call tries again
    return (await own)[method](...values);
  },
);
