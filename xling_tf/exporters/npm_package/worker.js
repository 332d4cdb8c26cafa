// Runs a model for `loadInWorker`: answers messages { method, values } in their order.

import { load } from "./index.js";

// In Node, a worker has a port in place of its own functions.
const port = globalThis.postMessage ? self : (await import(`node:${"worker_threads"}`)).parentPort;
let model;

port.onmessage = async ({ data: { method, values } }) => {
  try {
    const loaded = await (model ??= load(...values)); // the first call is "load"
    port.postMessage({ result: method === "load" ? loaded.dim : loaded[method](...values) });
  } catch (error) {
    port.postMessage({ error });
  }
};
