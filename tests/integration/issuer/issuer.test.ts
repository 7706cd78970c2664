import assert from "node:assert/strict";
import { renameSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, it, type TestContext } from "node:test";
import { createRemoteJWKSet, type JWTPayload, jwtVerify } from "jose";
import { freePort } from "../../../lab/ports.ts";
import { systemClock } from "../../../src/domain/clock.ts";
import { loadIssuerConfig } from "../../../src/issuer/config.ts";
import { generateSigningKeys, startIssuer } from "../../../src/issuer/server.ts";
import { eventually } from "../../support/gateway.ts";
import { recordedLog } from "../../support/recorded-log.ts";
import { temporaryFolder, writeFile } from "../../support/temporary.ts";

const AUDIENCE = "https://agents.org-a.example";
const SECRET = "first-secret-of-org-b";

const CLIENTS = `version: 1
clients:
  - {clientId: org-b-client, secret: {file: client-secrets/org-b}, partner: org-b.example}
  - {clientId: off-client, enabled: false, secret: {file: client-secrets/off}}
`;

interface Answer {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
}

async function setUp(t: TestContext) {
  const folder = temporaryFolder(t);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  writeFile(
    join(folder, "issuer.yaml"),
    `version: 1
listen: {port: ${port}}
url: ${url}
audience: ${AUDIENCE}
signingKeys: {file: secrets/signing-keys.json}
`,
  );
  writeFile(join(folder, "secrets/signing-keys.json"), JSON.stringify(await generateSigningKeys()), 0o600);
  writeFile(join(folder, "client-secrets/org-b"), `${SECRET}\n`, 0o600);
  writeFile(join(folder, "client-secrets/off"), "secret-of-off-client\n", 0o600);
  writeFile(join(folder, "clients.yaml"), CLIENTS);
  const recorded = recordedLog();
  const config = loadIssuerConfig(join(folder, "issuer.yaml"));
  let issuer = await startIssuer(config, recorded.log, systemClock);
  t.after(() => issuer.close());

  const ask = async (form: Record<string, string>, basic?: readonly [string, string]): Promise<Answer> => {
    const response = await fetch(`${url}/token`, {
      method: "POST",
      body: new URLSearchParams({ grant_type: "client_credentials", ...form }),
      headers: basic ? { authorization: `Basic ${Buffer.from(basic.join(":")).toString("base64")}` } : {},
    });
    return { status: response.status, body: (await response.json()) as Answer["body"] };
  };
  /** Sends this text and nothing more, and returns what comes back. */
  const raw = async (sent: string): Promise<string> => {
    const connection = connect(port, "127.0.0.1");
    connection.on("error", () => undefined).end(sent);
    return await text(connection).catch(() => "");
  };
  return {
    folder,
    url,
    log: recorded.text,
    ask,
    raw,
    restart: async () => {
      await issuer.close();
      issuer = await startIssuer(config, recorded.log, systemClock);
    },
  };
}

const AS_ORG_B = ["org-b-client", SECRET] as const;

async function verified(url: string, token: unknown): Promise<JWTPayload & Record<string, unknown>> {
  const keys = createRemoteJWKSet(new URL(`${url}/jwks`));
  const { payload } = await jwtVerify(String(token), keys, {
    issuer: url,
    audience: AUDIENCE,
    algorithms: ["ES256"],
    typ: "at+jwt",
  });
  return payload;
}

describe("the issuer", () => {
  it("a declared client gets a token of 300 seconds for the audience, with its azp [PLN-5]", async (t) => {
    const { url, ask } = await setUp(t);
    const { status, body } = await ask({}, AS_ORG_B);
    assert.equal(status, 200);
    assert.equal(body["token_type"], "Bearer");
    assert.equal(body["expires_in"], 300);
    const claims = await verified(url, body["access_token"]);
    assert.equal(claims.iss, url);
    assert.equal(claims.aud, AUDIENCE);
    assert.equal(claims["azp"], "org-b-client");
    assert.equal((claims.exp ?? 0) - (claims.iat ?? 0), 300);
  });

  it("a secret is accepted in the form as in the header", async (t) => {
    const { ask } = await setUp(t);
    const { status } = await ask({ client_id: "org-b-client", client_secret: SECRET, resource: AUDIENCE });
    assert.equal(status, 200);
  });

  for (const [what, credentials] of [
    ["a disabled client", ["off-client", "secret-of-off-client"]],
    ["an unknown client", ["nobody", "anything"]],
    ["a wrong secret", ["org-b-client", "wrong"]],
  ] as const) {
    it(`${what} gets 401 invalid_client [PLN-5]`, async (t) => {
      const { ask } = await setUp(t);
      const { status, body } = await ask({}, credentials);
      assert.deepEqual([status, body["error"]], [401, "invalid_client"]);
    });
  }

  it("a rotated secret counts at the next request, and the old one no more [PLN-5]", async (t) => {
    const { folder, ask } = await setUp(t);
    assert.equal((await ask({}, AS_ORG_B)).status, 200);
    writeFile(join(folder, "client-secrets/next"), "second-secret-of-org-b", 0o600);
    renameSync(join(folder, "client-secrets/next"), join(folder, "client-secrets/org-b"));
    assert.equal((await ask({}, AS_ORG_B)).status, 401);
    assert.equal((await ask({}, ["org-b-client", "second-secret-of-org-b"])).status, 200);
  });

  it("a client that is disabled gets 401 at the next request, and a token again when enabled [PLN-5]", async (t) => {
    const { folder, ask } = await setUp(t);
    const file = join(folder, "clients.yaml");
    writeFile(file, CLIENTS.replace("org-b-client,", "org-b-client, enabled: false,"));
    assert.equal((await ask({}, AS_ORG_B)).status, 401);
    writeFile(file, CLIENTS);
    assert.equal((await ask({}, AS_ORG_B)).status, 200);
  });

  it("the last good clients' file stays in force when a new one cannot be used, and the log holds line and hint", async (t) => {
    const { folder, ask, log } = await setUp(t);
    const file = join(folder, "clients.yaml");
    writeFile(file, `${CLIENTS}  - {clientId: org-b-client, secret: {file: client-secrets/x}}\n`);
    assert.equal((await ask({}, AS_ORG_B)).status, 200);
    assert.match(log(), /clients_refused.*clients\.yaml:5: clients\.2\.clientId: declared twice.*hint/);
    rmSync(file);
    assert.equal((await ask({}, AS_ORG_B)).status, 200);
    assert.equal((await ask({}, AS_ORG_B)).status, 200);
    assert.equal(log().match(/clients_refused/g)?.length, 2);
  });

  it("another resource gets 400 invalid_target", async (t) => {
    const { ask } = await setUp(t);
    const { status, body } = await ask({ resource: "https://other.example" }, AS_ORG_B);
    assert.deepEqual([status, body["error"]], [400, "invalid_target"]);
  });

  for (const grant of [
    "password",
    "authorization_code",
    "refresh_token",
    "urn:ietf:params:oauth:grant-type:device_code",
  ]) {
    it(`the grant ${grant} is refused`, async (t) => {
      const { ask } = await setUp(t);
      const { status, body } = await ask({ grant_type: grant }, AS_ORG_B);
      assert.deepEqual([status, body["error"]], [400, "unsupported_grant_type"]);
    });
  }

  it("only the token endpoint, the key set and discovery are served", async (t) => {
    const { url } = await setUp(t);
    for (const [method, path] of [
      ["GET", "/auth"],
      ["POST", "/token/introspection"],
      ["POST", "/token/revocation"],
      ["GET", "/me"],
      ["POST", "/request"],
      ["GET", "/session/end"],
      ["POST", "/reg"],
      ["GET", "/token"],
      ["GET", "/interaction/x"],
    ] as const) {
      const { status } = await fetch(url + path, { method });
      assert.equal(status, 404, `${method} ${path}`);
    }
    const discovery = (await (
      await fetch(`${url}/.well-known/openid-configuration`)
    ).json()) as Answer["body"];
    assert.deepEqual(discovery["grant_types_supported"], ["client_credentials"]);
    assert.equal(discovery["token_endpoint"], `${url}/token`);
  });

  it("discovery names the configured address, whatever host a caller names", async (t) => {
    const { url, raw } = await setUp(t);
    for (const host of ["evil.test", "a b", "%%", ""]) {
      const headers = `Host: ${host}\r\nX-Forwarded-Host: ${host}\r\nX-Forwarded-Proto: gopher\r\nConnection: close`;
      const answer = await raw(`GET /.well-known/openid-configuration HTTP/1.1\r\n${headers}\r\n\r\n`);
      assert.match(answer, /^HTTP\/1.1 200 /, host);
      assert.ok(answer.includes(`"token_endpoint":"${url}/token"`), host);
      assert.ok(answer.includes(`"jwks_uri":"${url}/jwks"`), host);
    }
  });

  it("a request that is malformed or breaks off is answered or dropped, and nothing of it is printed", async (t) => {
    const { raw, ask } = await setUp(t);
    const printed = t.mock.method(console, "error", () => {});
    const basic = Buffer.from(AS_ORG_B.join(":")).toString("base64");
    const form = `Host: x\r\nAuthorization: Basic ${basic}\r\nContent-Type: application/x-www-form-urlencoded`;
    await raw("GARBAGE\r\n\r\n");
    await raw(`POST /token HTTP/1.1\r\n${form}\r\nContent-Length: 100\r\n\r\ngrant`);
    await raw(`POST /token HTTP/1.1\r\n${form}\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n`);
    assert.equal((await ask({}, AS_ORG_B)).status, 200);
    assert.equal(printed.mock.callCount(), 0);
  });

  it("a token issued before a restart still verifies after it", async (t) => {
    const { url, ask, restart } = await setUp(t);
    const { body } = await ask({}, AS_ORG_B);
    await restart();
    assert.equal((await verified(url, body["access_token"]))["azp"], "org-b-client");
  });

  it("no secret, token or text of a caller is logged, and the key set publishes no private part", async (t) => {
    const { url, ask, log } = await setUp(t);
    const { body } = await ask({ scope: "canary-scope" }, AS_ORG_B);
    await ask({ resource: "https://canary.example" }, AS_ORG_B);
    await ask({}, ["canary-client", "canary-secret"]);
    await ask({ client_id: "canary-client", client_secret: "canary-secret", grant_type: "canary-grant" });
    assert.match(log(), /token_issued/);
    assert.match(log(), /token_refused/);
    assert.doesNotMatch(log(), /canary/);
    assert.ok(!log().includes(SECRET));
    assert.ok(!log().includes(String(body["access_token"]).slice(0, 20)));
    const { keys } = (await (await fetch(`${url}/jwks`)).json()) as { keys: object[] };
    assert.deepEqual(
      keys.map((key) => Object.keys(key).sort()),
      [["alg", "crv", "kid", "kty", "use", "x", "y"]],
    );
  });

  it("a client that was closed between two requests stays closed when a broken file follows [PLN-5]", async (t) => {
    const { folder, ask, log } = await setUp(t);
    const replace = (text: string) => {
      writeFile(join(folder, "clients.next"), text);
      renameSync(join(folder, "clients.next"), join(folder, "clients.yaml"));
    };
    replace(CLIENTS.replace("{clientId: org-b-client,", "{clientId: org-b-client, enabled: false,"));
    await eventually("the file taken up", () => (log().includes("clients_reloaded") ? true : undefined));
    replace("version: [");
    await eventually("the file refused", () => (log().includes("clients_refused") ? true : undefined));
    assert.equal((await ask({}, AS_ORG_B)).status, 401);
  });
});
