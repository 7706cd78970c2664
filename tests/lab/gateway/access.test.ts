// Who gets through a real gateway, and with which code everybody else is turned away.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { generateSigningKeys } from "../../../src/issuer/server.ts";
import {
  type AgentDouble,
  AUDIENCE,
  agentDouble,
  endGateway,
  eventually,
  type TestGateway,
  type TestIssuer,
  testGateway,
  testIssuer,
} from "../../support/gateway.ts";

const RPC = "/agents/docs-qa/rpc";
const CARD = "/agents/docs-qa/.well-known/agent-card.json";

let issuer: TestIssuer;
let agent: AgentDouble;
let gateway: TestGateway;

const folder = mkdtempSync(join(tmpdir(), "drawbridge test "));

before(async () => {
  issuer = await testIssuer(folder);
  agent = await agentDouble();
  gateway = await testGateway(folder, {
    issuer: { url: issuer.url, jwksUrl: `${issuer.url}/jwks`, audience: AUDIENCE },
    agents: {
      "docs-qa": {
        upstream: `${agent.url}/a2a`,
        cardPath: CARD,
        invokePath: RPC,
        httpJson: true,
        clients: ["org-b-client", "limited-client", "quiet-client"],
      },
      plain: {
        upstream: agent.url,
        cardPath: "/plain/card.json",
        invokePath: "/plain/rpc",
        clients: ["org-b-client"],
      },
      closed: { upstream: agent.url, cardPath: "/closed/card.json", invokePath: "/closed/rpc", clients: [] },
    },
    quotas: {
      default: { perMinute: 6_000, burst: 1_000 },
      clients: {
        "limited-client": { perMinute: 1, burst: 2 },
        "stranger-client": { perMinute: 1, burst: 1 },
      },
    },
  });
});
after(async () => {
  await endGateway(gateway);
  await agent?.close();
  await issuer?.close();
  rmSync(folder, { recursive: true, force: true });
});
beforeEach(() => {
  agent.received.length = 0;
});

interface Call {
  readonly token?: string;
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

let calls = 0;

async function call({ token, method = "POST", path = RPC, headers = {}, body = "{}" }: Call) {
  calls += 1;
  const response = await fetch(gateway.url + path, {
    method,
    headers: {
      "content-type": "application/json",
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...headers,
    },
    ...(method === "GET" ? {} : { body }),
  });
  return { status: response.status, headers: response.headers, text: await response.text() };
}

interface LogEntry {
  readonly azp: string | null;
  readonly route: string;
  readonly code: number;
  readonly details: string;
  readonly flags: string;
}

/** The access log of all calls so far, in order; it lags a little behind the answers. */
function accessLog(): Promise<LogEntry[]> {
  return eventually(`${calls} lines in the access log`, () => {
    const lines = gateway.accessLog().trimEnd().split("\n");
    return lines.length >= calls ? lines.map((line) => JSON.parse(line) as LogEntry) : undefined;
  });
}

describe("access through the gateway", () => {
  it("an admitted client reaches the agent, which learns its azp from the gateway alone [PLN-5]", async () => {
    const token = await issuer.token("org-b-client");
    const { status } = await call({ token, headers: { "x-azp": "somebody-else" }, body: '{"a":1}' });
    assert.equal(status, 200);
    const [received] = agent.received;
    assert.equal(received?.url, "/a2a");
    assert.equal(received?.body, '{"a":1}');
    assert.equal(received?.headers["x-azp"], "org-b-client");
    assert.equal(received?.headers.authorization, undefined);
  });

  it("the card is public by GET alone, and a token that comes with the request is not passed on", async () => {
    const token = await issuer.token("org-b-client");
    const { status } = await call({ token, method: "GET", path: CARD, headers: { "x-azp": "somebody" } });
    assert.equal(status, 200);
    assert.equal(agent.received[0]?.url, "/.well-known/agent-card.json");
    assert.equal(agent.received[0]?.headers["x-azp"], undefined);
    assert.equal(agent.received[0]?.headers.authorization, undefined);
    assert.equal((await call({ method: "POST", path: CARD })).status, 404);
  });

  const now = () => Math.floor(performance.timeOrigin / 1_000 + performance.now() / 1_000);

  for (const [what, token, status, details] of [
    ["no token", async () => undefined, 401, "jwt_authn_access_denied{Jwt_is_missing}"],
    [
      "an expired token",
      async () => issuer.token("org-b-client", { claims: { exp: now() - 10 } }),
      401,
      "jwt_authn_access_denied{Jwt_is_expired}",
    ],
    [
      "a token without expiry",
      async () => issuer.token("org-b-client", { claims: { exp: undefined } }),
      401,
      /jwt_authn_access_denied/,
    ],
    [
      "a token by another key under the issuer's key ID",
      async () => {
        const real = await issuer.token("org-b-client");
        const kid = JSON.parse(Buffer.from(real.split(".")[0] ?? "", "base64url").toString()).kid as string;
        return issuer.token("org-b-client", { keys: await generateSigningKeys(), header: { kid } });
      },
      401,
      "jwt_authn_access_denied{Jwt_verification_fails}",
    ],
    [
      "a token by an unknown key",
      async () => issuer.token("org-b-client", { keys: await generateSigningKeys() }),
      401,
      /jwt_authn_access_denied/,
    ],
    [
      "an unsigned token",
      async () => {
        const [, payload] = (await issuer.token("org-b-client")).split(".");
        return `${Buffer.from('{"alg":"none"}').toString("base64url")}.${payload}.`;
      },
      401,
      /jwt_authn_access_denied/,
    ],
    [
      "a token of another issuer",
      async () => issuer.token("org-b-client", { claims: { iss: "https://other.example" } }),
      401,
      "jwt_authn_access_denied{Jwt_issuer_is_not_configured}",
    ],
    [
      "a token for another audience",
      async () => issuer.token("org-b-client", { claims: { aud: "https://other.example" } }),
      403,
      "jwt_authn_access_denied{Audiences_in_Jwt_are_not_allowed}",
    ],
    [
      "a client that is not admitted",
      async () => issuer.token("org-c-client"),
      403,
      "rbac_access_denied_matched_policy[none]",
    ],
    [
      "a client whose name only begins like an admitted one",
      async () => issuer.token("org-b-client-2"),
      403,
      "rbac_access_denied_matched_policy[none]",
    ],
    [
      "a token without azp",
      async () => issuer.token(undefined),
      403,
      "rbac_access_denied_matched_policy[none]",
    ],
    [
      "an azp that is a list with an admitted one",
      async () => issuer.token(undefined, { claims: { azp: ["org-b-client"] } }),
      403,
      "rbac_access_denied_matched_policy[none]",
    ],
  ] as const) {
    it(`${what} gets ${status} and never reaches the agent [PLN-5]`, async () => {
      const value = await token();
      const answer = await call(value === undefined ? {} : { token: value });
      assert.equal(answer.status, status, answer.text);
      assert.equal(agent.received.length, 0);
      const received = (await accessLog()).at(-1)?.details ?? "";
      if (typeof details === "string") assert.equal(received, details);
      else assert.match(received, details);
    });
  }

  it("a token in the query is ignored", async () => {
    const token = await issuer.token("org-b-client");
    assert.equal((await call({ path: `${RPC}?access_token=${token}` })).status, 401);
    assert.equal(agent.received.length, 0);
  });

  it("an agent without clients is closed to every client [PLN-5]", async () => {
    const token = await issuer.token("org-b-client");
    assert.equal((await call({ token, path: "/closed/rpc" })).status, 404);
    assert.equal(agent.received.length, 0);
  });

  it("a path that is not published is 404, with a token and without [PLN-5]", async () => {
    const token = await issuer.token("org-b-client");
    for (const [method, path] of [
      ["POST", "/"],
      ["GET", RPC],
      ["PUT", RPC],
      ["POST", `${RPC}/`],
      ["POST", `${RPC}/tasks`],
      ["POST", `${RPC}/message:delete`],
      ["GET", `${RPC}/message:send`],
      ["GET", `${RPC}/tasks/a/b`],
      ["GET", `${RPC}/tasks/a:cancel`],
      ["DELETE", `${RPC}/tasks/a`],
      ["GET", `${RPC}/extendedAgentCard`],
      ["POST", `${RPC}/tasks/a/pushNotificationConfigs`],
      ["POST", "/plain/rpc/message:send"],
      ["GET", "/plain/rpc/tasks"],
      ["GET", `${CARD}/`],
      ["POST", RPC.toUpperCase()],
    ] as const) {
      assert.equal((await call({ method, path, token })).status, 404, `${method} ${path} with a token`);
      assert.equal((await call({ method, path })).status, 404, `${method} ${path} without`);
    }
    assert.equal(agent.received.length, 0);
  });

  it("each HTTP+JSON operation passes by its own method and path, for admitted clients alone", async () => {
    const [good, bad] = [await issuer.token("org-b-client"), await issuer.token("org-c-client")];
    for (const [method, path] of [
      ["POST", "/message:send"],
      ["POST", "/message:stream"],
      ["GET", "/tasks"],
      ["GET", "/tasks?pageSize=2"],
      ["GET", "/tasks/0b1c-4.5_6~7"],
      ["POST", "/tasks/0b1c:cancel"],
      ["POST", "/tasks/0b1c:subscribe"],
      ["GET", "/tasks/0b1c:subscribe"],
    ] as const) {
      assert.equal((await call({ method, path: RPC + path, token: good })).status, 200, `${method} ${path}`);
      assert.equal(agent.received.pop()?.url, `/a2a${path}`);
      assert.equal((await call({ method, path: RPC + path, token: bad })).status, 403, `${method} ${path}`);
      assert.equal((await call({ method, path: RPC + path })).status, 401, `${method} ${path}`);
      assert.equal(agent.received.length, 0);
    }
  });

  it("an encoded slash is refused, and a path is normalized before it is matched", async () => {
    const token = await issuer.token("org-b-client");
    assert.equal((await call({ token, path: "/agents%2fdocs-qa/rpc" })).status, 400);
    assert.equal((await call({ token, path: "//agents//docs-qa///rpc" })).status, 200);
    assert.equal((await call({ token, path: "/closed/%2e%2e/agents/docs-qa/rpc" })).status, 200);
  });

  it("a caller's own x-envoy headers are ignored", async () => {
    const token = await issuer.token("org-b-client");
    const headers = {
      "x-envoy-upstream-rq-timeout-ms": "1",
      "x-envoy-original-path": "/canary",
      "x-envoy-retry-on": "5xx",
      "x-forwarded-for": "127.0.0.1",
      "x-envoy-internal": "true",
    };
    const { status } = await call({ token, headers });
    assert.equal(status, 200);
    const received = agent.received[0]?.headers ?? {};
    assert.equal(received["x-envoy-upstream-rq-timeout-ms"], undefined);
    assert.notEqual(received["x-envoy-original-path"], "/canary");
    assert.equal(received["x-envoy-internal"], undefined);
  });

  it("a client can have no more than 64 KiB of a call by HTTP/2 on its way to an agent that does not read", async () => {
    const session = connect(gateway.url);
    await once(session, "remoteSettings");
    assert.equal(session.remoteSettings.initialWindowSize, 65_536);
    session.destroy();
  });

  it("a client over its quota gets 429 with Retry-After, and other clients pass [PLN-5]", async () => {
    const limited = await issuer.token("limited-client");
    const statuses = [];
    for (let i = 0; i < 4; i++) statuses.push((await call({ token: limited })).status);
    assert.deepEqual(statuses, [200, 200, 429, 429]);
    const refused = await call({ token: limited });
    assert.equal(refused.headers.get("retry-after"), "60");
    assert.equal((await accessLog()).at(-1)?.details, "local_rate_limited");
    for (const azp of ["org-b-client", "quiet-client"]) {
      assert.equal((await call({ token: await issuer.token(azp) })).status, 200, azp);
    }
    assert.equal((await call({ method: "GET", path: CARD })).status, 200);
  });

  it("a client that is not admitted is refused before its quota is used [PLN-5]", async () => {
    const stranger = await issuer.token("stranger-client");
    for (let i = 0; i < 5; i++) assert.equal((await call({ token: stranger })).status, 403);
  });

  it("the access log holds caller, route and code, and nothing of content, path or token [PLN-5]", async () => {
    const token = await issuer.token("org-b-client");
    await call({
      token,
      path: `${RPC}/tasks/canary-task?canary=query`,
      method: "GET",
      headers: { "x-request-id": "canary-request", "user-agent": "canary-agent", "x-azp": "canary-azp" },
    });
    await call({ token, body: '{"text":"canary-body"}', headers: { "x-request-id": "canary-request" } });
    await call({ path: "/canary-path", headers: { authorization: "Bearer canary-token" } });
    const entries = (await accessLog()).slice(-3);
    const log = gateway.accessLog();
    assert.doesNotMatch(log, /canary/);
    assert.ok(!log.includes(token.slice(-40)));
    assert.deepEqual(
      entries.map(({ azp, route, code, details, flags }) => ({ azp, route, code, details, flags })),
      [
        { azp: "org-b-client", route: "invoke:docs-qa:get", code: 200, details: "via_upstream", flags: "-" },
        { azp: "org-b-client", route: "invoke:docs-qa", code: 200, details: "via_upstream", flags: "-" },
        { azp: null, route: "none", code: 404, details: "direct_response", flags: "-" },
      ],
    );
    assert.deepEqual(Object.keys(entries[0] ?? {}).sort(), [
      "azp",
      "bytes_in",
      "bytes_out",
      "code",
      "details",
      "duration_ms",
      "flags",
      "route",
      "start_time",
    ]);
  });
});
