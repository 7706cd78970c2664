// What some dependencies expect of Node.js.
export const process = globalThis.process ?? {
  env: { NODE_ENV: "production" },
  browser: true,
  version: "",
  nextTick: (f, ...a) => queueMicrotask(() => f(...a)),
};
export { Buffer } from "buffer/";
