import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { describe, it } from "node:test";
import { fetchCard } from "../../../src/cards/fetch.ts";
import { CARD_BYTES_MAX } from "../../../src/cards/reject-reasons.ts";
import { systemClock } from "../../../src/domain/clock.ts";
import { httpServer, json } from "../../support/http-server.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const clock = systemClock;

describe("fetchCard", () => {
  it("a card is returned as the bytes that were served", async (t) => {
    const server = await httpServer(t);
    const body = Buffer.from([0xff, 0xfe, 0x7b, 0x00]);
    server.answer = json(body);
    const fetched = await fetchCard(`${server.url}/card`, { clock });
    assert.ok(fetched.fetched);
    assert.deepEqual(Buffer.from(fetched.bytes), body);
    const [request] = server.requests;
    assert.equal(request?.method, "GET");
    assert.equal(request?.headers["accept-encoding"], "identity");
    assert.equal(request?.headers.authorization, undefined);
  });

  for (const type of [
    "application/json",
    "application/json; charset=utf-8",
    "Application/JSON;charset=UTF-8",
    "application/a2a+json",
  ]) {
    it(`the media type ${type} is taken`, async (t) => {
      const server = await httpServer(t);
      server.answer = (_request, response) => response.writeHead(200, { "content-type": type }).end("{}");
      assert.equal((await fetchCard(server.url, { clock })).fetched, true);
    });
  }

  const big = Buffer.alloc(CARD_BYTES_MAX + 1, " ");
  const REFUSED: readonly (readonly [string, string, (response: ServerResponse) => void])[] = [
    ["redirected", "301", (r) => r.writeHead(301, { location: "/other" }).end()],
    ["redirected", "307", (r) => r.writeHead(307, { location: "/other" }).end()],
    ["redirected", "304", (r) => r.writeHead(304).end()],
    ["status_refused", "204", (r) => r.writeHead(204).end()],
    ["status_refused", "206", (r) => r.writeHead(206, { "content-type": "application/json" }).end("{}")],
    ["status_refused", "403", (r) => r.writeHead(403, { "content-type": "application/json" }).end("{}")],
    ["status_refused", "404", (r) => r.writeHead(404).end()],
    ["status_refused", "503", (r) => r.writeHead(503).end()],
    ["media_type_refused", "no media type", (r) => r.writeHead(200).end("{}")],
    ["media_type_refused", "HTML", (r) => r.writeHead(200, { "content-type": "text/html" }).end("{}")],
    [
      "media_type_refused",
      "a near miss",
      (r) => r.writeHead(200, { "content-type": "application/jsonp" }).end("{}"),
    ],
    [
      "media_type_refused",
      "UTF-16",
      (r) => r.writeHead(200, { "content-type": "application/json; charset=utf-16" }).end("{}"),
    ],
    [
      "encoding_refused",
      "gzip",
      (r) => r.writeHead(200, { "content-type": "application/json", "content-encoding": "gzip" }).end("{}"),
    ],
    [
      "too_large",
      "a body declared too large",
      (r) => r.writeHead(200, { "content-type": "application/json", "content-length": big.length }).end(big),
    ],
    [
      "too_large",
      "a body that turns out too large",
      (r) => {
        r.writeHead(200, { "content-type": "application/json" });
        r.write(big);
        r.end(" ");
      },
    ],
    ["unreachable", "a broken connection", (r) => r.destroy()],
    [
      "unreachable",
      "a body cut short",
      (r) => {
        r.writeHead(200, { "content-type": "application/json", "content-length": 10 });
        r.write("{");
        setImmediate(() => r.destroy());
      },
    ],
  ];
  for (const [failure, what, answer] of REFUSED) {
    it(`no card is taken from ${what}: ${failure} [AGT-3]`, async (t) => {
      const server = await httpServer(t);
      server.answer = (_request, response) => answer(response);
      const fetched = await fetchCard(`${server.url}/card`, { clock });
      assert.ok(!fetched.fetched);
      assert.equal(fetched.failure, failure);
      assert.equal(server.requests.length, 1, "nothing is followed or repeated");
    });
  }

  it("a body of exactly the largest size is accepted", async (t) => {
    const server = await httpServer(t);
    server.answer = json(big.subarray(1));
    assert.equal((await fetchCard(server.url, { clock })).fetched, true);
  });

  it("the deadline covers the whole request, a slow body included", async (t) => {
    const server = await httpServer(t);
    const asked = Promise.withResolvers<void>();
    server.answer = (_request, response) => {
      response.writeHead(200, { "content-type": "application/json" }).write("{");
      asked.resolve();
    };
    const time = new ManualClock(0);
    const fetching = fetchCard(server.url, { clock: time, timeoutMs: 5_000 });
    await asked.promise;
    await time.advance(4_999);
    await time.advance(1);
    assert.deepEqual(await fetching, { fetched: false, failure: "timed_out", status: undefined });
    assert.deepEqual(time.wakeTimes, []);
  });

  it("a closed port and an aborted signal are reported as unreachable", async () => {
    const closed = await fetchCard("http://127.0.0.1:1/card", { clock });
    assert.ok(!closed.fetched && closed.failure === "unreachable");
    const aborted = await fetchCard("http://127.0.0.1:1/card", { clock, signal: AbortSignal.abort() });
    assert.ok(!aborted.fetched && aborted.failure === "unreachable");
  });
});
