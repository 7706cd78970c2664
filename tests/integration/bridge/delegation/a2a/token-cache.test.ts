import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { A2aFailure } from "../../../../../src/bridge/delegation/a2a/classify-failure.ts";
import { type Credentials, createTokenSource } from "../../../../../src/bridge/delegation/a2a/token-cache.ts";
import { delegationSuite } from "../../../../support/delegation-suite.ts";
import { httpServer, startTestIssuer } from "../../../../support/http-server.ts";
import { ManualClock } from "../../../../support/manual-clock.ts";
import { writeFile } from "../../../../support/temporary.ts";

const TWO_WAITS = ["retry-after", "5", "retry-after", "6"];

async function source(t: TestContext) {
  const issuer = await startTestIssuer(t);
  const directory = mkdtempSync(join(tmpdir(), "drawbridge-tokens-"));
  t.after(() => rmSync(directory, { recursive: true }));
  const writeSecret = (secret: string) =>
    writeFile(join(directory, "client-secrets/agent"), `${secret}\n`, 0o600);
  writeSecret(issuer.secret);
  const clock = new ManualClock(0);
  const outcomes: string[] = [];
  const tokens = createTokenSource({
    ...{ clock, baseDirectory: directory },
    observe: (outcome) => outcomes.push(outcome),
  });
  const credentials: Credentials = {
    tokenEndpoint: issuer.tokenEndpoint,
    clientId: "client/of org-a",
    clientSecret: { file: "client-secrets/agent" },
    resource: "https://b.test/agents",
    scope: "invoke",
  };
  return { issuer, tokens, outcomes, credentials, clock, directory, writeSecret };
}

describe("token source", () => {
  const setUpDelegation = delegationSuite();

  it("a token is requested by client credentials, with resource and scope, and cached [DEL-8]", async (t) => {
    const { issuer, tokens, credentials } = await source(t);
    assert.deepEqual(await tokens.token(credentials), { value: "token-1", fetched: true });
    assert.deepEqual(await tokens.token(credentials), { value: "token-1", fetched: false });
    const [request] = issuer.requests;
    assert.equal(request?.clientId, credentials.clientId);
    assert.equal(request?.secret, issuer.secret);
    assert.deepEqual(Object.fromEntries(request?.form ?? []), {
      grant_type: "client_credentials",
      resource: "https://b.test/agents",
      scope: "invoke",
    });
  });

  it("a token is renewed 30 seconds before it expires [DEL-8]", async (t) => {
    const { tokens, credentials, clock } = await source(t);
    await tokens.token(credentials);
    await clock.advance(269_999);
    assert.equal((await tokens.token(credentials)).value, "token-1");
    await clock.advance(1);
    assert.equal((await tokens.token(credentials)).value, "token-2");
  });

  for (const [expiresIn, goodMs] of [
    [40, 20_000],
    [undefined, 30_000],
  ] as const) {
    it(`a token of ${expiresIn ?? "unstated"} seconds is used for ${goodMs} ms`, async (t) => {
      const { issuer, tokens, credentials, clock } = await source(t);
      issuer.expiresIn = expiresIn;
      await tokens.token(credentials);
      await clock.advance(goodMs - 1);
      assert.equal((await tokens.token(credentials)).fetched, false);
      await clock.advance(1);
      assert.equal((await tokens.token(credentials)).fetched, true);
    });
  }

  it("concurrent callers share one token request; another resource makes its own [DEL-8]", async (t) => {
    const { issuer, tokens, credentials } = await source(t);
    const values = await Promise.all(Array.from({ length: 50 }, () => tokens.token(credentials)));
    assert.deepEqual(new Set(values.map(({ value }) => value)), new Set(["token-1"]));
    assert.equal(issuer.requests.length, 1);
    await tokens.token({ ...credentials, resource: "https://c.test" });
    assert.equal(issuer.requests.length, 2);
  });

  it("concurrent callers whose token was rejected renew it once [DEL-8]", async (t) => {
    const { issuer, tokens, credentials } = await source(t);
    await tokens.token(credentials);
    const values = await Promise.all(Array.from({ length: 20 }, () => tokens.token(credentials, "token-1")));
    assert.deepEqual(new Set(values.map(({ value }) => value)), new Set(["token-2"]));
    assert.equal((await tokens.token(credentials, "token-1")).value, "token-2");
    assert.equal(issuer.requests.length, 2);
  });

  it("a rotated secret is used at the next request, without a restart [DEL-8]", async (t) => {
    const { issuer, tokens, outcomes, credentials, writeSecret } = await source(t);
    await tokens.token(credentials);
    issuer.secret = "rotated";
    await assert.rejects(tokens.token(credentials, "token-1"), { kind: "unauthenticated" });
    assert.deepEqual(outcomes, ["ok", "token_refused"]);
    writeSecret("rotated");
    assert.equal((await tokens.token(credentials, "token-1")).value, "token-2");
  });

  const CANARY = "canary-of-the-issuer";
  for (const [name, status, body, code] of [
    ["401", 401, `{"error":"invalid_client","error_description":"${CANARY}"}`, "token_refused"],
    ["400", 400, `{"error":"invalid_target","error_description":"${CANARY}"}`, "token_refused"],
    ["500", 500, CANARY, "token_unavailable"],
    ["429", 429, CANARY, "token_unavailable"],
    ["a redirect", 302, CANARY, "token_unavailable"],
    ["no JSON", 200, CANARY, "token_unavailable"],
    ["no token", 200, `{"token_type":"Bearer","x":"${CANARY}"}`, "token_unavailable"],
    [
      "a token that no header can hold",
      200,
      `{"token_type":"Bearer","access_token":"${CANARY}\\r\\nx: y"}`,
      "token_unavailable",
    ],
    ["another token type", 200, `{"token_type":"mac","access_token":"${CANARY}"}`, "token_unavailable"],
    ["a megabyte", 200, " ".repeat(1024 * 1024), "token_unavailable"],
  ] as const) {
    it(`the failure is counted as ${code}, and has none of the issuer's text, when the issuer answers ${name}`, async (t) => {
      const { issuer, tokens, outcomes, credentials } = await source(t);
      issuer.answer = { status, body, headers: { location: "http://127.0.0.1:1/" } };
      const error = await tokens.token(credentials).then(
        () => assert.fail("there was a token"),
        (failure: unknown) => failure,
      );
      assert.ok(error instanceof A2aFailure);
      assert.equal(error.kind, "unauthenticated");
      assert.deepEqual(outcomes, [code]);
      assert.equal(error.cause, undefined);
      assert.doesNotMatch(`${error.message} ${error.stack}`, /canary|s3cret/);
    });
  }

  for (const [name, refuse] of [
    ["drips", (response) => void response.writeHead(401).write("x")],
    [
      "is cut off",
      (response) => {
        response.writeHead(401, { "content-length": "100" }).write("x");
        setTimeout(() => response.destroy(), 20);
      },
    ],
    ["is too long", (response) => response.writeHead(403).end("x".repeat(200_000))],
    ["comes with two Retry-After", (response) => response.writeHead(400, TWO_WAITS).end("<html>")],
  ] satisfies [string, (response: ServerResponse) => unknown][]) {
    it(`a refusal of the issuer is final within 5 s when its body ${name}`, { timeout: 5_000 }, async (t) => {
      const { tokens, outcomes, credentials } = await source(t);
      const server = await httpServer(t);
      server.answer = (_request, response) => refuse(response);
      const retryAfterMs = name.includes("Retry-After") ? 5_000 : undefined;
      await assert.rejects(tokens.token({ ...credentials, tokenEndpoint: server.url }), {
        kind: "unauthenticated",
        retryAfterMs,
      });
      assert.deepEqual(outcomes, ["token_refused"]);
    });
  }

  it("the failure is counted as secret_unavailable when the secret cannot be read", async (t) => {
    const { tokens, outcomes, credentials, issuer } = await source(t);
    await assert.rejects(tokens.token({ ...credentials, clientSecret: { file: "client-secrets/nowhere" } }), {
      kind: "unauthenticated",
    });
    assert.deepEqual(outcomes, ["secret_unavailable"]);
    assert.equal(issuer.requests.length, 0);
  });

  process.env["DRAWBRIDGE_SECRET_DELEGATION_TEST"] = "s3cret:with/odd+signs";

  /** An agent that takes only the second token. */
  async function setUpRenewal(t: TestContext, streaming: boolean) {
    const issuer = await startTestIssuer(t);
    const credentials: Credentials = {
      tokenEndpoint: issuer.tokenEndpoint,
      clientId: "a",
      clientSecret: { env: "DRAWBRIDGE_SECRET_DELEGATION_TEST" },
    };
    const delegation = await setUpDelegation(t, { streaming, harness: { entry: { credentials } } });
    delegation.agent.tokens = new Set(["token-2"]);
    return { issuer, ...delegation };
  }

  for (const streaming of [true, false]) {
    it(`a 401 of the agent renews the token once and repeats the request (streaming ${streaming}) [DEL-8]`, async (t) => {
      const { issuer, agent, harness, admit } = await setUpRenewal(t, streaming);
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.outcome !== undefined);
      assert.equal(row.outcome?.reason, "answered");
      assert.equal(row.attempts, 0);
      const asked = agent.requestsOf(streaming ? "stream" : "send").map(({ authorization }) => authorization);
      assert.deepEqual(asked, ["Bearer token-1", "Bearer token-2"]);
      assert.equal(issuer.requests.length, 2);
    });

    it(`a request is not repeated when trust is lost while a token is renewed (streaming ${streaming}) [DEL-2] [DEL-8]`, async (t) => {
      const { agent, harness, admit } = await setUpRenewal(t, streaming);
      const { tokens } = harness.deps;
      const { token } = tokens;
      const renewed: typeof token = async (asked, rejected) => {
        if (rejected !== undefined) harness.trust = { trust: "quarantined", reason: "agent_card_untrusted" };
        return await token(asked, rejected);
      };
      Object.assign(tokens, { token: renewed });
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.outcome !== undefined);
      assert.equal(row.outcome?.reason, "agent_card_untrusted");
      assert.deepEqual(agent.behaviour.prompts, []);
    });

    it(`a request is not repeated when others took the process for ended while a token was renewed (streaming ${streaming}) [DEL-8] [DEL-9]`, async (t) => {
      const { agent, harness, admit } = await setUpRenewal(t, streaming);
      const { tokens } = harness.deps;
      const { token } = tokens;
      const first = harness.mortal("first");
      const renewed: typeof token = async (asked, rejected) => {
        if (rejected !== undefined) first.isAlive = false;
        return await token(asked, rejected);
      };
      Object.assign(tokens, { token: renewed });
      const row = await admit();
      first.worker.start();
      await harness.until(() => harness.metrics.count("deferred:token_refused") === 1);
      assert.equal(agent.requestsOf(streaming ? "stream" : "send").length, 1);
      first.isAlive = true;
      await harness.until(() => row.outcome !== undefined);
      assert.equal(agent.behaviour.started.length, 1);
      await first.worker.drain();
    });

    it(`a delegation ends token_refused, after retries with a back-off, when the 401 persists (streaming ${streaming}) [DEL-8]`, async (t) => {
      const issuer = await startTestIssuer(t);
      const credentials: Credentials = {
        tokenEndpoint: issuer.tokenEndpoint,
        clientId: "a",
        clientSecret: { env: "DRAWBRIDGE_SECRET_DELEGATION_TEST" },
      };
      const { agent, harness, admit } = await setUpDelegation(t, {
        streaming,
        harness: { entry: { credentials } },
      });
      agent.tokens = new Set();
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.outcome !== undefined, 2_000);
      assert.deepEqual(row.outcome, {
        state: "failed",
        stage: "dispatch",
        reason: "token_refused",
        notice: "delegation_failed",
      });
      assert.ok(agent.requests.length < 90, String(agent.requests.length));
      assert.doesNotMatch(harness.logged.join(""), /token-|s3cret/);
    });
  }

  it("a question waits, and spends no limiter token, while the issuer is away [DEL-8]", async (t) => {
    const issuer = await startTestIssuer(t);
    const credentials: Credentials = {
      tokenEndpoint: issuer.tokenEndpoint,
      clientId: "a",
      clientSecret: { env: "DRAWBRIDGE_SECRET_DELEGATION_TEST" },
    };
    const { agent, harness, admit, limiterTokens } = await setUpDelegation(t, {
      harness: { entry: { credentials } },
    });
    issuer.answer = { status: 503, body: "" };
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.attempts === 3);
    assert.deepEqual([agent.requests.length, await limiterTokens(), row.state], [0, undefined, "queued"]);
    issuer.answer = undefined;
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "answered");
  });
});
