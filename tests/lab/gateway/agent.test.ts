// The sample agent behind a real gateway: its card untouched, every method of both bindings.
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import {
  AgentCard,
  CancelTaskRequest,
  GetTaskRequest,
  ListTasksRequest,
  SendMessageRequest,
  SubscribeToTaskRequest,
  TaskState,
} from "@a2a-js/sdk";
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";
import { freePort } from "../../../lab/ports.ts";
import { importPinnedKey, verifyCard } from "../../../src/cards/verify.ts";
import { testAgent } from "../../support/docs-qa.ts";
import { AUDIENCE, endGateway, testGateway, testIssuer } from "../../support/gateway.ts";
import { temporaryFolder } from "../../support/temporary.ts";

describe("an agent behind the gateway", () => {
  it("the card is served byte for byte and verifies, and both bindings work with a token", async (t) => {
    const folder = temporaryFolder(t);
    const issuer = await testIssuer(join(folder, "org-a"));
    t.after(() => issuer.close());
    const port = await freePort();
    const invokeUrl = `http://127.0.0.1:${port}/agents/docs-qa/rpc`;
    let release: (text: string) => void = () => undefined;
    const agent = await testAgent(t, {
      publicUrl: invokeUrl,
      answer: (question) =>
        question === "slow"
          ? new Promise((resolve) => {
              release = resolve;
            })
          : Promise.resolve("at once"),
    });
    const gateway = await testGateway(folder, {
      listen: { port },
      issuer: { url: issuer.url, jwksUrl: `${issuer.url}/jwks`, audience: AUDIENCE },
      agents: {
        "docs-qa": {
          upstream: agent.url,
          cardPath: "/agents/docs-qa/.well-known/agent-card.json",
          invokePath: "/agents/docs-qa/rpc",
          httpJson: true,
          clients: ["org-b-client", "org-c-client"],
        },
      },
    });
    t.after(() => endGateway(gateway));

    const cardUrl = `${gateway.url}/agents/docs-qa/.well-known/agent-card.json`;
    const [direct, through] = [await fetch(`${agent.url}.well-known/agent-card.json`), await fetch(cardUrl)];
    const bytes = Buffer.from(await through.arrayBuffer());
    assert.deepEqual(bytes, Buffer.from(await direct.arrayBuffer()));
    const etag = through.headers.get("etag") ?? "";
    assert.notEqual(etag, "");
    assert.match(through.headers.get("cache-control") ?? "", /max-age/);
    assert.equal((await fetch(cardUrl, { headers: { "if-none-match": etag } })).status, 304);
    const verdict = await verifyCard(bytes, [await importPinnedKey("docs-qa-1", agent.publicJwk)]);
    assert.ok(verdict.accepted);
    assert.equal(verdict.card.supportedInterfaces[0]?.url, invokeUrl);

    const clientOf = async (azp: string, binding: string) => {
      const token = await issuer.token(azp);
      const fetchImpl: typeof fetch = (input, init) => {
        const headers = new Headers(init?.headers);
        headers.set("authorization", `Bearer ${token}`);
        return fetch(input, { ...init, headers });
      };
      const factory = new ClientFactory({
        transports: [new JsonRpcTransportFactory({ fetchImpl }), new RestTransportFactory({ fetchImpl })],
        preferredTransports: [binding],
      });
      return factory.createFromAgentCard(AgentCard.fromJSON(JSON.parse(bytes.toString())));
    };
    const ask = (text: string, messageId: string, returnImmediately = false) =>
      SendMessageRequest.fromJSON({
        message: { messageId, role: "ROLE_USER", parts: [{ text }] },
        configuration: { returnImmediately },
      });

    for (const binding of ["JSONRPC", "HTTP+JSON"]) {
      const client = await clientOf("org-b-client", binding);
      const done = await client.sendMessage(ask("now", `now-${binding}`));
      assert.ok("status" in done);
      assert.equal(done.status?.state, TaskState.TASK_STATE_COMPLETED, binding);

      const kinds: string[] = [];
      for await (const { payload } of client.sendMessageStream(ask("now", `stream-${binding}`))) {
        kinds.push(String(payload?.$case));
      }
      assert.deepEqual(kinds, ["task", "artifactUpdate", "statusUpdate"], binding);

      const slow = await client.sendMessage(ask("slow", `slow-${binding}`, true));
      assert.ok("status" in slow);
      assert.equal(slow.status?.state, TaskState.TASK_STATE_WORKING, binding);
      const found = await client.listTasks(ListTasksRequest.fromJSON({ status: "TASK_STATE_WORKING" }));
      assert.deepEqual(
        found.tasks.map((task) => task.history[0]?.messageId),
        [`slow-${binding}`],
      );
      const stream = client.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id: slow.id }));
      assert.equal((await stream.next()).value?.payload?.$case, "task");
      release("at last");
      for await (const _ of stream);
      const read = await client.getTask(GetTaskRequest.fromJSON({ id: slow.id }));
      assert.equal(read.status?.state, TaskState.TASK_STATE_COMPLETED, binding);

      const stranger = await clientOf("org-c-client", binding);
      await assert.rejects(stranger.getTask(GetTaskRequest.fromJSON({ id: slow.id })), /not found/i, binding);

      const canceled = await client.sendMessage(ask("slow", `cancel-${binding}`, true));
      assert.ok("status" in canceled);
      const task = await client.cancelTask(CancelTaskRequest.fromJSON({ id: canceled.id }));
      assert.equal(task.status?.state, TaskState.TASK_STATE_CANCELED, binding);
      release("nobody waits");
    }
  });
});
