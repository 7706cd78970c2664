// Keeps Node.js's test runner from following every promise to the test that made it, which is a tenth of the processor time of
// processes with many tests. Imported for its effect, before node:test.
// Invariants: an error that nothing catches fails the run as ever, but names no test: a file that runs by itself does not
// import this, and names it.
import asyncHooks from "node:async_hooks";

const { createHook } = asyncHooks;
asyncHooks.createHook = () => {
  // The runner's own is the first: it is made with the first test.
  asyncHooks.createHook = createHook;
  return createHook({});
};
