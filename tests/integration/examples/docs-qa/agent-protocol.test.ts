// What the sample agent publishes, and its answers to requests that are not as the protocol has them.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MESSAGE_ID_IDEMPOTENCY } from "../../../../src/cards/card-fields.ts";
import { lintCard } from "../../../../src/cards/lint.ts";
import { importPinnedKey, verifyCard } from "../../../../src/cards/verify.ts";
import { testAgent } from "../../../support/docs-qa.ts";

describe("the sample agent and the protocol", () => {
  it("the card is signed, passes the lint, and is the same bytes with the same ETag after a restart", async (t) => {
    const agent = await testAgent(t);
    const url = `${agent.url}.well-known/agent-card.json`;
    const response = await fetch(url);
    const bytes = Buffer.from(await response.arrayBuffer());
    const etag = response.headers.get("etag") ?? "";
    assert.match(response.headers.get("cache-control") ?? "", /max-age=\d+/);
    assert.deepEqual(lintCard(bytes), []);
    const verdict = await verifyCard(bytes, [await importPinnedKey("docs-qa-1", agent.publicJwk)]);
    assert.ok(verdict.accepted);
    assert.deepEqual(
      verdict.card.capabilities.extensions?.map(({ uri }) => uri),
      [MESSAGE_ID_IDEMPOTENCY],
    );
    await agent.stop();
    await agent.start();
    const again = await fetch(url);
    assert.deepEqual(Buffer.from(await again.arrayBuffer()), bytes);
    assert.equal(again.headers.get("etag"), etag);
    assert.equal((await fetch(url, { headers: { "if-none-match": etag } })).status, 304);
  });

  it("the extension is activated for a caller that asks for it", async (t) => {
    const agent = await testAgent(t);
    const response = await fetch(agent.url, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "a2a-version": "1.0",
        "a2a-extensions": `${MESSAGE_ID_IDEMPOTENCY}, urn:other`,
      },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        method: "SendMessage",
        params: { message: { messageId: "m1", role: "ROLE_USER", parts: [{ text: "tea" }] } },
      }),
    });
    assert.equal(response.headers.get("a2a-extensions"), MESSAGE_ID_IDEMPOTENCY);
  });

  it("another protocol version is refused with the protocol's own code", async (t) => {
    const agent = await testAgent(t);
    for (const headers of [{}, { "a2a-version": "9.9" }]) {
      const response = await fetch(agent.url, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify({ jsonrpc: "2.0", id: 7, method: "GetTask", params: { id: "x" } }),
      });
      const body = (await response.json()) as { id: number; error: { code: number } };
      assert.deepEqual([response.status, body.id, body.error.code], [200, 7, -32009]);
    }
  });

  it("malformed requests get an answer, never a stack or a hang", async (t) => {
    const agent = await testAgent(t);
    const post = async (path: string, body: string, type = "application/json") => {
      const response = await fetch(new URL(path, agent.url), {
        method: "POST",
        headers: { "content-type": type, "a2a-version": "1.0" },
        body,
      });
      return { status: response.status, text: await response.text() };
    };
    const rpc = (params: unknown, method = "SendMessage") =>
      post("/", JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }));
    for (const reply of [
      await post("/", "{"),
      await post("/", "[]"),
      await post("/", "null"),
      await post("/", '"canary"', "text/plain"),
      await rpc(null),
      await rpc({}),
      await rpc({ message: {} }),
      await rpc({ message: { messageId: 7, parts: "x" } }),
      await rpc({ message: { messageId: "a", parts: [7] } }),
      await rpc({ message: { messageId: "a", taskId: "../../etc/passwd", parts: [] } }),
      await rpc({ id: "../x" }, "GetTask"),
      await rpc({ pageSize: -1 }, "ListTasks"),
      await rpc({ id: "x" }, "SubscribeToTask"),
      await rpc({}, "Nothing"),
    ]) {
      assert.equal(reply.status, 200);
      assert.ok(JSON.parse(reply.text).error?.code < 0, reply.text);
      assert.doesNotMatch(reply.text, /\bat .*\.(?:ts|js):/);
    }
    assert.equal((await post("/message:send", "{")).status, 400);
    assert.equal((await post("/message:send", "{}")).status, 400);
    assert.equal((await post("/tasks/x:cancel", "")).status, 404);
    assert.equal((await post("/", "x".repeat(2 * 1024 * 1024))).status, 413);
    assert.equal((await fetch(new URL("/nothing", agent.url))).status, 404);
  });
});
