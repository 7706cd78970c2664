// Connections to agents: which addresses they reach, whatever a name resolves to.
import assert from "node:assert/strict";
import type { lookup } from "node:dns";
import { constants } from "node:http2";
import { describe, it, type TestContext } from "node:test";
import { AgentClient } from "../../../../../src/bridge/delegation/a2a/agent-client.ts";
import { A2aFailure } from "../../../../../src/bridge/delegation/a2a/classify-failure.ts";
import { createAgentHttp, Exchange } from "../../../../../src/bridge/delegation/a2a/http-exchange.ts";
import { fetchCard } from "../../../../../src/cards/fetch.ts";
import { systemClock } from "../../../../../src/domain/clock.ts";
import { cardOf } from "../../../../support/delegation.ts";
import { http2Server, httpServer } from "../../../../support/http-server.ts";

/** A server that only the bridge's own network is meant to reach. */
async function internalServer(t: TestContext) {
  const server = await httpServer(t);
  server.answer = (_request, response) =>
    response.writeHead(200, { "content-type": "application/json" }).end("{}");
  return { port: new URL(server.url).port, requests: server.requests };
}

/** Every name is at this address by the time it is connected to. */
const resolvingTo = (address: string) =>
  ((_host: string, _options: unknown, callback: (error: null, found: unknown) => void) =>
    callback(null, [{ address, family: 4 }])) as unknown as typeof lookup;

const post = (mayBePrivate: boolean) => ({
  method: "POST",
  headers: { authorization: "Bearer token" },
  body: "a question",
  signal: AbortSignal.timeout(5_000),
  mayBePrivate,
});

describe("connections to agents", () => {
  it("a name that points to a private address is not reached unless the operator lists it [AGT-4]", async (t) => {
    const { port, requests } = await internalServer(t);
    const http = createAgentHttp(resolvingTo("127.0.0.1"));
    t.after(() => http.close());
    await assert.rejects(http.fetch(`http://agent.test:${port}/`, post(false)), {
      code: "ERR_ADDRESS_NOT_PUBLIC",
    });
    await assert.rejects(http.fetch(`http://127.0.0.1:${port}/`, post(false)), {
      code: "ERR_ADDRESS_NOT_PUBLIC",
    });
    assert.deepEqual(requests, []);
    assert.equal((await http.fetch(`http://127.0.0.1:${port}/`, post(true))).status, 200);
    // The connection that stands now is not used for a request that may not go there.
    await assert.rejects(http.fetch(`http://127.0.0.1:${port}/`, post(false)), {
      code: "ERR_ADDRESS_NOT_PUBLIC",
    });
    assert.equal(requests.length, 1);
  });

  it("a question goes to a private address only where the operator lists the origin, or has written the address into cardUrl [AGT-4]", async (t) => {
    const { port, requests } = await internalServer(t);
    const http = createAgentHttp(resolvingTo("127.0.0.1"));
    t.after(() => http.close());
    const [named, written] = [`http://localhost:${port}`, `http://127.0.0.1:${port}`];
    const ask = async (origin: string, allowedOrigins: readonly string[], cardOrigin = origin) => {
      const client = new AgentClient(
        {
          ...{ http, clock: systemClock, requestTimeoutMs: 5_000, bytesMax: 1_000 },
          tokens: { token: () => assert.fail("no token is needed") },
          mayRepeat: () => assert.fail("nothing is repeated"),
          observe: () => {},
        },
        {
          card: cardOf(origin),
          entry: {
            cardUrl: `${cardOrigin}/card`,
            allowedOrigins: [...allowedOrigins],
            credentials: undefined,
          },
        },
      );
      const question = { messageId: "m", text: "question", taskId: undefined, contextId: undefined };
      const failure: unknown = await client
        .send(question, AbortSignal.timeout(5_000))
        .catch((error) => error);
      return failure instanceof A2aFailure ? failure.kind : failure;
    };
    assert.equal(await ask(named, []), "not_delivered");
    assert.deepEqual(requests, []);
    for (const reached of [ask(named, [named]), ask(written, []), ask(written, [written], named)]) {
      assert.notEqual(await reached, "not_delivered");
    }
    assert.equal(requests.length, 3);
  });

  it("a question goes to an agent once, whatever its server says of it over HTTP/2 [AGT-4] [DEL-7]", async (t) => {
    let questions = 0;
    const port = await http2Server(t, async (request) => {
      for await (const _ of request);
      questions += 1;
      if (request.httpVersion === "2.0") request.stream.close(constants.NGHTTP2_REFUSED_STREAM);
      else request.socket.destroy();
    });
    const http = createAgentHttp();
    t.after(() => http.close());
    await assert.rejects(http.fetch(`https://localhost:${port}/`, post(true)));
    assert.equal(questions, 1);
  });

  it("a response that announces more than the limit is refused before its body comes", async (t) => {
    const server = await httpServer(t);
    server.answer = (_request, response) => {
      response.writeHead(200, { "content-type": "application/json", "content-length": "1001" }).write("{");
    };
    const http = createAgentHttp();
    t.after(() => http.close());
    const options = { http, headers: {}, mayBePrivate: true, bytesMax: 1_000, isSoundEvent: () => true };
    const exchange = new Exchange(options);
    await assert.rejects(exchange.fetch(server.url, { signal: AbortSignal.timeout(5_000) }), /too large/);
    assert.equal(exchange.fault, "too_large");
  });

  it("a card is not fetched from a private address unless that is allowed [AGT-3]", async (t) => {
    const { port, requests } = await internalServer(t);
    for (const url of [`http://127.0.0.1:${port}/card`, `http://localhost:${port}/card`]) {
      const refused = await fetchCard(url, { clock: systemClock, mayBePrivate: false });
      assert.deepEqual(refused, { fetched: false, failure: "address_not_public", status: undefined });
    }
    assert.deepEqual(requests, []);
    const fetched = await fetchCard(`http://127.0.0.1:${port}/card`, {
      clock: systemClock,
      mayBePrivate: true,
    });
    assert.equal(fetched.fetched, true);
  });
});
