// What a probe takes for an answer of the gateway.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Agent, getGlobalDispatcher, setGlobalDispatcher } from "undici";
import type { ProbeConfig } from "../../../../src/federation/probes/config.ts";
import { probeCards } from "../../../../src/federation/probes/partner-at-gateway.ts";
import { http2Server, httpServer } from "../../../support/http-server.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

describe("probeCards", () => {
  it("the gateway is asked by HTTP/1.1, also where it offers HTTP/2 [PLN-4]", async (t) => {
    const ofProcess = getGlobalDispatcher();
    setGlobalDispatcher(new Agent());
    t.after(() => setGlobalDispatcher(ofProcess));
    const versions: string[] = [];
    const port = await http2Server(t, (request, response) => {
      versions.push(request.httpVersion);
      response.writeHead(404).end();
    });
    const agents = [{ name: "search", cardUrl: `https://localhost:${port}/card`, invokeUrl: "" }];
    const config = { as: { serverName: "b.test" }, target: { agents } } as unknown as ProbeConfig;
    await probeCards(config, {
      clock: new ManualClock(0),
      random: { bytes: () => Buffer.alloc(16) },
    } as never);
    assert.deepEqual(versions, ["1.1"]);
  });

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
