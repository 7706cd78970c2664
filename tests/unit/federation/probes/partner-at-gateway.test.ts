// What a probe takes for an answer of the gateway.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ProbeConfig } from "../../../../src/federation/probes/config.ts";
import { probeCards } from "../../../../src/federation/probes/partner-at-gateway.ts";
import { httpServer } from "../../../support/http-server.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

describe("probeCards", () => {
  it("an answer that is longer than any known one says nothing about the card's route [PLN-4]", async (t) => {
    const server = await httpServer(t);
    let bytes = 100;
    server.answer = (_request, response) => {
      response.writeHead(404, { "content-type": "text/plain" }).end("x".repeat(bytes));
    };
    const agents = [{ name: "search", cardUrl: `${server.url}/card`, invokeUrl: `${server.url}/invoke` }];
    const config = { as: { serverName: "b.test" }, target: { agents } } as unknown as ProbeConfig;
    const sources = { clock: new ManualClock(0), random: { bytes: () => Buffer.alloc(16) } };
    const observed = async () =>
      (await probeCards(config, sources as never)).map(({ verdict, status }) => [verdict, status]);
    assert.deepEqual(await observed(), [["closed", 404]]);
    bytes = 100 * 1024;
    assert.deepEqual(await observed(), [["unknown", null]]);
  });
});
