// What changes in a running gateway, and what a change must not break.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { type ClientHttp2Session, connect } from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { stringify } from "yaml";
import { sha256Tagged } from "../../../src/domain/digest.ts";
import {
  type AgentDouble,
  AUDIENCE,
  admissionFiles,
  agentDouble,
  endGateway,
  eventually,
  type GatewayInput,
  type TestGateway,
  type TestIssuer,
  testGateway,
  testIssuer,
} from "../../support/gateway.ts";

const RPC = "/agents/docs-qa/rpc";

let issuer: TestIssuer;
let agent: AgentDouble;
let gateway: TestGateway;
let original: GatewayInput;

const folder = mkdtempSync(join(tmpdir(), "drawbridge test "));
/** The agent goes on with a stream that it has begun. */
const goesOn = Promise.withResolvers<void>();

before(async () => {
  issuer = await testIssuer(folder);
  agent = await agentDouble(async ({ body }, response) => {
    if (!body.includes("stream")) {
      response.setHeader("content-type", "application/json").end("{}");
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 0\n\n");
    await goesOn.promise;
    for (let i = 1; i < 14; i++) response.write(`data: ${i}\n\n`);
    response.end();
  });
  gateway = await testGateway(folder, {
    issuer: { url: issuer.url, jwksUrl: `${issuer.url}/jwks`, audience: AUDIENCE },
    agents: {
      "docs-qa": {
        upstream: agent.url,
        cardPath: "/agents/docs-qa/card.json",
        invokePath: RPC,
        clients: ["org-b-client", "limited-client"],
      },
    },
    quotas: {
      default: { perMinute: 6_000, burst: 1_000 },
      clients: { "limited-client": { perMinute: 1, burst: 1 }, "late-client": { perMinute: 1, burst: 1 } },
    },
  });
  original = gateway.config();
});
after(async () => {
  await endGateway(gateway);
  await agent?.close();
  await issuer?.close();
  rmSync(folder, { recursive: true, force: true });
});

async function statusOf(azp: string | undefined, path = RPC): Promise<number> {
  const response = await fetch(gateway.url + path, {
    method: "POST",
    headers: azp === undefined ? {} : { authorization: `Bearer ${await issuer.token(azp)}` },
    body: "{}",
  });
  await response.body?.cancel();
  return response.status;
}

function becomes(status: number, azp: string | undefined, path = RPC): Promise<true> {
  return eventually(`${status} for ${azp}`, async () =>
    (await statusOf(azp, path)) === status ? true : undefined,
  );
}

function logged(pattern: RegExp): Promise<true> {
  return eventually(String(pattern), () => (pattern.test(gateway.log()) ? true : undefined));
}

function withClients(...clients: string[]): (config: GatewayInput) => GatewayInput {
  return (config) => {
    const agent = config.agents["docs-qa"];
    assert.ok(agent);
    return { ...config, agents: { ...config.agents, "docs-qa": { ...agent, clients } } };
  };
}

const digestOf = (name: string) => sha256Tagged(readFileSync(join(folder, `${name}.yaml`)));

describe("changes of a running gateway", () => {
  it("a removed client is refused without a restart, and buckets and other clients are not changed [PLN-5]", async () => {
    assert.equal(await statusOf("limited-client"), 200);
    assert.equal(await statusOf("limited-client"), 429);
    const { pid } = gateway.running.child;
    gateway.configure(withClients("limited-client"));
    await becomes(403, "org-b-client");
    assert.equal(await statusOf("limited-client"), 429);
    gateway.configure(() => original);
    await becomes(200, "org-b-client");
    assert.equal(await statusOf("limited-client"), 429);
    assert.equal(gateway.running.child.pid, pid);
    assert.equal(gateway.running.child.exitCode, null);
  });

  it("a client that was refused has its whole quota when it is admitted [PLN-5]", async () => {
    for (let i = 0; i < 3; i++) assert.equal(await statusOf("late-client"), 403);
    gateway.configure(withClients("org-b-client", "limited-client", "late-client"));
    await eventually("admission", async () => {
      const status = await statusOf("late-client");
      assert.notEqual(status, 429);
      return status === 200 ? true : undefined;
    });
    assert.equal(await statusOf("late-client"), 429);
    gateway.configure(() => original);
    await becomes(403, "late-client");
  });

  it("a withdrawn agent is 404, card and route, with a token and without [PLN-5]", async () => {
    gateway.configure((config) => ({ ...config, agents: {} }));
    // From served to gone, with nothing between: never a route whose agent is unknown already.
    await eventually("the withdrawal", async () => {
      const statuses = await Promise.all(Array.from({ length: 8 }, () => statusOf("org-b-client")));
      for (const status of statuses) assert.ok(status === 200 || status === 404, String(status));
      return statuses.every((status) => status === 404) ? true : undefined;
    });
    assert.equal(await statusOf(undefined), 404);
    assert.equal((await fetch(`${gateway.url}/agents/docs-qa/card.json`)).status, 404);
    gateway.configure(() => original);
    await becomes(200, "org-b-client");
  });

  it("a published agent can move to another server without a failing call", async (t) => {
    const second = await agentDouble((_, response) => {
      response.statusCode = 202;
      response.end();
    });
    t.after(() => second.close());
    gateway.configure((config) => {
      const agent = config.agents["docs-qa"];
      assert.ok(agent);
      return { ...config, agents: { "docs-qa": { ...agent, upstream: second.url } } };
    });
    await eventually("the new agent", async () => {
      const status = await statusOf("org-b-client");
      assert.ok(status === 200 || status === 202, String(status));
      return status === 202 ? true : undefined;
    });
    gateway.configure(() => original);
    await becomes(200, "org-b-client");
  });

  it("a stream is passed on event by event, and continues when its route is removed", {
    timeout: 30_000,
  }, async () => {
    const response = await fetch(gateway.url + RPC, {
      method: "POST",
      headers: { authorization: `Bearer ${await issuer.token("org-b-client")}` },
      body: '{"method":"stream"}',
    });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    assert.ok(reader);
    // It comes before the agent has sent another one.
    let text = (await reader.read()).value ?? "";
    gateway.configure((config) => ({ ...config, agents: {} }));
    await becomes(404, "org-b-client");
    goesOn.resolve();
    for (let next = await reader.read(); !next.done; next = await reader.read()) text += next.value;
    assert.equal(text.match(/data: /g)?.length, 14);
    gateway.configure(() => original);
    await becomes(200, "org-b-client");
  });

  it("a client that holds more than a thousand streams keeps no other from the agent", {
    timeout: 30_000,
  }, async (t) => {
    const holding = await agentDouble(({ body }, response) => {
      response.writeHead(200).write("data: 0\n\n");
      if (body === "{}") response.end();
    });
    const sessions: ClientHttp2Session[] = [];
    // In a failure too: this process does not end while a stream is open.
    t.after(async () => {
      for (const session of sessions) session.destroy();
      await holding.close();
      gateway.configure(() => original);
      await becomes(404, "org-c-client", path);
    });
    const path = "/agents/holding/rpc";
    const clients = ["org-b-client", "org-c-client"];
    gateway.configure((config) => ({
      ...config,
      agents: { ...config.agents, holding: { upstream: holding.url, invokePath: path, clients } },
      // A fast machine opens all of them within a second.
      quotas: { ...config.quotas, default: { perMinute: 6_000, burst: 5_000 } },
    }));
    await becomes(200, "org-c-client", path);
    const digest = digestOf("invocation");
    await eventually("the quota", () => (gateway.state()?.invocation === digest ? true : undefined));
    const authorization = `Bearer ${await issuer.token("org-b-client")}`;
    for (let i = 0; i < 11; i++) {
      const session = connect(gateway.url);
      sessions.push(session);
      const held = Array.from({ length: 100 }, async () => {
        const stream = session.request({ ":method": "POST", ":path": path, authorization });
        const [headers] = (await once(stream.end("hold"), "response")) as [{ ":status"?: number }];
        return headers[":status"];
      });
      assert.deepEqual(new Set(await Promise.all(held)), new Set([200]));
    }
    assert.equal(await statusOf("org-c-client", path), 200);
  });

  it("a connection that was open before a quota changed takes no further calls by the old one", async (t) => {
    const session = connect(gateway.url);
    t.after(() => session.destroy());
    const token = await issuer.token("org-b-client");
    const call = async () => {
      const request = session.request({ ":method": "POST", ":path": RPC, authorization: `Bearer ${token}` });
      const [headers] = (await once(request.end("{}"), "response")) as [{ ":status"?: number }];
      request.resume();
      return headers[":status"];
    };
    assert.equal(await call(), 200);
    const ended = once(session, "close");
    const quotas = { ...original.quotas, default: { perMinute: 5_000, burst: 1_000 } };
    gateway.configure((config) => ({ ...config, quotas }));
    const digest = digestOf("invocation");
    await eventually("the quota", () => (gateway.state()?.invocation === digest ? true : undefined));
    assert.equal(await call(), 200);
    await ended;
    gateway.configure(() => original);
    await becomes(200, "org-b-client");
  });

  it("the last good file stays in force when a new one is broken, and the log holds line and hint", async () => {
    gateway.configureText("invocation", "version: 1\nagents:\n  docs-qa: {clients: all}\n");
    await logged(/config_refused.*invocation\.yaml:3: agents\.docs-qa\.clients.*"hint"/);
    assert.equal(await statusOf("org-b-client"), 200);
    gateway.configureText("gateway", "version: [");
    await logged(/config_refused.*gateway\.yaml.*not valid YAML/);
    assert.equal(await statusOf("org-b-client"), 200);
  });

  it("a configuration that Envoy's validation refuses is not put in force", async () => {
    gateway.configure((config) => ({
      ...config,
      issuer: { ...config.issuer, jwksUrl: "https://127.0.0.1:1/jwks", caFile: "no-such-file.pem" },
    }));
    await logged(/config_refused.*Envoy refuses the rendered configuration.*no-such-file/);
    assert.equal(await statusOf("org-b-client"), 200);
  });

  it("a change that needs a restart is refused with that reason", async () => {
    gateway.configure(() => ({ ...original, adminPort: original.adminPort + 1 }));
    await logged(/config_refused.*adminPort cannot change while the gateway runs/);
    assert.equal(await statusOf("org-b-client"), 200);
    gateway.configure(() => original);
  });

  it("state.json names what is in force after Envoy serves it, and which file is refused [PLN-5]", async () => {
    const inForce = () =>
      eventually("both files in force", () => {
        const state = gateway.state();
        const isNew =
          state?.invocation === digestOf("invocation") && state.publication === digestOf("publication");
        return isNew && state.refused === null ? state : undefined;
      });
    const before = await inForce();
    gateway.configure(withClients("limited-client"));
    const after = await inForce();
    // No waiting here: what the state file says is so.
    assert.equal(await statusOf("org-b-client"), 403);
    assert.notEqual(after.invocation, before.invocation);
    assert.equal(after.publication, before.publication);
    assert.ok(after.since >= before.since);

    gateway.configureText("publication", "version: 1\ncards: {x: 1}\n");
    const refused = await eventually("the refusal", () => gateway.state()?.refused ?? undefined);
    assert.deepEqual([refused.file, refused.reason], ["publication", "invalid"]);
    assert.equal(refused.digest, digestOf("publication"));
    assert.equal((await fetch(`${gateway.url}/agents/docs-qa/card.json`)).status, 200);

    gateway.configure(() => original);
    await becomes(200, "org-b-client");
    const { refused: still } = await eventually("the other file in force", () => {
      const state = gateway.state();
      return state?.invocation === digestOf("invocation") ? state : undefined;
    });
    assert.equal(still, null);
  });

  it("a bad file does not delay the others, and both are taken up when they agree again", async () => {
    gateway.configureText("publication", "version: [");
    await eventually("the refusal", () =>
      gateway.state()?.refused?.file === "publication" ? true : undefined,
    );
    const closed = admissionFiles(withClients("limited-client")(original));
    gateway.configureText("invocation", stringify(closed.invocation));
    await becomes(403, "org-b-client");
    assert.equal(gateway.state()?.refused?.file, "publication");

    // Card and invocation change places: neither new file agrees with the other's old one.
    gateway.configure(() => {
      const agent = original.agents["docs-qa"];
      assert.ok(agent);
      return {
        ...original,
        agents: { "docs-qa": { ...agent, cardPath: RPC, invokePath: "/agents/docs-qa/card.json" } },
      };
    });
    await becomes(200, "org-b-client", "/agents/docs-qa/card.json");
    // Each of Envoy's threads takes up new routes by itself.
    await eventually("the card at its new path", async () =>
      (await fetch(gateway.url + RPC)).status === 200 ? true : undefined,
    );
    await eventually("nothing refused", () => (gateway.state()?.refused === null ? true : undefined));
    gateway.configure(() => original);
    await becomes(200, "org-b-client");
  });

  it("a missing file leaves its last content in force and is reported", async () => {
    rmSync(join(folder, "invocation.yaml"));
    const refused = await eventually("the report", () => gateway.state()?.refused ?? undefined);
    assert.deepEqual([refused.file, refused.reason, refused.digest], ["invocation", "unreadable", null]);
    assert.equal(await statusOf("org-b-client"), 200);
    gateway.configureText("invocation", stringify(admissionFiles(original).invocation));
    await eventually("nothing refused", () => (gateway.state()?.refused === null ? true : undefined));
  });
});
