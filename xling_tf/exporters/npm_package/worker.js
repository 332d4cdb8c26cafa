// Runs a model for `loadInWorker`: answers messages { id, method, values } in their order.

import { load } from "./index.js";

const isBrowser = typeof self !== "undefined" && typeof self.postMessage === "function";
const port = isBrowser ? self : (await import(`node:${"worker_threads"}`)).parentPort;
let model;

async function answer({ id, method, values }) {
  try {
    if (method === "load") model = load(...values);
    const loaded = await model;
    port.postMessage({ id, result: method === "load" ? loaded.dim : loaded[method](...values) });
  } catch (error) {
    port.postMessage({ id, error });
  }
}

if (isBrowser) self.onmessage = (event) => answer(event.data);
else port.on("message", answer);
