"use strict";

// For `require`: every function of index.js that returns a promise.
for (const name of ["load", "loadInWorker", "encode", "similarity", "probability", "semanticSearch"]) {
  exports[name] = async (...values) => (await import("./index.js"))[name](...values);
}
