import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { describe, it } from "node:test";
import { fastify } from "fastify";
import type { BridgeOptions } from "../../../src/bridge/context.ts";
import { listen } from "../../../src/bridge/process.ts";
import { systemClock } from "../../../src/domain/clock.ts";

describe("the port of a bridge", () => {
  it("a port that the process before still holds is waited for", { timeout: 8_000 }, async (t) => {
    const held = createServer().listen(0, "127.0.0.1");
    await once(held, "listening");
    const port = (held.address() as { port: number }).port;
    const server = fastify();
    t.after(() => server.close());
    const config = { listen: { host: "127.0.0.1", port } };
    const options = { config, clock: systemClock, stop: new AbortController().signal } as BridgeOptions;
    setTimeout(() => held.close(), 400);
    await listen(server, "listen", options);
    assert.equal(server.server.listening, true);
  });

  it("a wait for a port ends quietly at a stop, without listening", { timeout: 8_000 }, async (t) => {
    const held = createServer().listen(0, "127.0.0.1");
    await once(held, "listening");
    const port = (held.address() as { port: number }).port;
    const server = fastify();
    t.after(() => Promise.all([server.close(), held.close()]));
    const stop = new AbortController();
    const config = { listen: { host: "127.0.0.1", port } };
    const options = { config, clock: systemClock, stop: stop.signal } as BridgeOptions;
    setTimeout(() => stop.abort(), 400);
    await listen(server, "listen", options);
    assert.equal(server.server.listening, false);
  });
});
