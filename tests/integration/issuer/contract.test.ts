// What plane 5 promises of an issuer, whichever program it is: the same cases on the one-machine issuer
// (`./task test`) and on a real Keycloak (`./task test:keycloak`).
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { createRemoteJWKSet, decodeJwt, type JWTPayload, jwtVerify } from "jose";
import {
  AUDIENCE,
  declaredIssuer,
  type IssuerUnderTest,
  intentOf,
  KEYCLOAK_URL,
  keycloakIssuer,
} from "../../support/issuers.ts";

const folder = mkdtempSync(join(tmpdir(), "drawbridge test "));
let issuer: IssuerUnderTest;

const CLIENT = { clientId: "org-b-client", secret: { file: "client-secrets/b" }, partner: "org-b.example" };
const OTHER = { clientId: "org-c-client", secret: { file: "client-secrets/c" }, partner: "org-c.example" };

before(async () => {
  issuer = await (KEYCLOAK_URL === undefined ? declaredIssuer(folder) : keycloakIssuer(folder));
  issuer.putSecret("b", "secret-of-b");
  issuer.putSecret("c", "secret-of-c");
});
after(async () => {
  await issuer?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Brings the issuer to these clients, and expects that all are as they should be. */
async function apply(...clients: Parameters<typeof intentOf>[0]): Promise<boolean> {
  const { changed, failures } = await issuer.adapter.apply(intentOf(clients));
  assert.deepEqual([...failures], []);
  assert.deepEqual(await issuer.adapter.drift(intentOf(clients)), []);
  return changed;
}

/** As a gateway verifies. */
async function verified(token: string): Promise<JWTPayload & Readonly<Record<string, unknown>>> {
  const keys = createRemoteJWKSet(new URL(issuer.jwksUrl));
  const { payload } = await jwtVerify(token, keys, {
    issuer: issuer.url,
    audience: AUDIENCE,
    algorithms: ["ES256"],
  });
  return payload;
}

async function refusal(secret: string, clientId = CLIENT.clientId): Promise<readonly unknown[]> {
  const { status, error, token } = await issuer.ask(clientId, secret);
  assert.equal(token, "");
  return [status, error];
}

describe("issuer adapters", () => {
  it("a declared client gets an ES256 token of 300 seconds with its azp and the one audience [PLN-5]", async () => {
    assert.equal(await apply(CLIENT, OTHER), true);
    const { status, token } = await issuer.ask("org-b-client", "secret-of-b");
    assert.equal(status, 200);
    const claims = await verified(token);
    assert.equal(claims["azp"], "org-b-client");
    assert.deepEqual([claims.aud].flat(), [AUDIENCE]);
    assert.equal((claims.exp ?? 0) - (claims.iat ?? 0), 300);
  });

  it("clients that are as declared are not changed [PLN-5]", async () => {
    await apply(CLIENT, OTHER);
    assert.equal(await apply(CLIENT, OTHER), false);
  });

  it("an undeclared client gets no token [PLN-5]", async () => {
    await apply(CLIENT);
    assert.deepEqual(await refusal("secret-of-b", "nobody"), [401, "invalid_client"]);
  });

  it("a wrong secret gets no token [PLN-5]", async () => {
    await apply(CLIENT);
    assert.deepEqual(await refusal("wrong"), [401, issuer.wrongSecret]);
  });

  it("a disabled client gets no token from then on, and other clients do [PLN-5]", async () => {
    await apply(CLIENT, OTHER);
    assert.equal(await apply({ ...CLIENT, enabled: false }, OTHER), true);
    assert.deepEqual(await refusal("secret-of-b"), [401, "invalid_client"]);
    assert.equal((await issuer.ask("org-c-client", "secret-of-c")).status, 200);
    const read = await issuer.adapter.read();
    assert.deepEqual([read.get("org-b-client")?.enabled, read.get("org-c-client")?.enabled], [false, true]);
  });

  it("a client is enabled again with the secret that is declared then [PLN-5]", async () => {
    await apply({ ...CLIENT, enabled: false });
    issuer.putSecret("b2", "second-secret-of-b");
    await apply({ ...CLIENT, secret: { file: "client-secrets/b2" } });
    assert.equal((await issuer.ask("org-b-client", "second-secret-of-b")).status, 200);
    assert.equal((await issuer.ask("org-b-client", "secret-of-b")).status, 401);
    await apply(CLIENT);
  });

  it("a rotated secret is accepted, and the old one no more [PLN-5]", async () => {
    issuer.putSecret("rotating", "old");
    const rotating = { ...CLIENT, secret: { file: "client-secrets/rotating" } };
    await apply(rotating);
    assert.equal((await issuer.ask("org-b-client", "old")).status, 200);
    issuer.putSecret("rotating", "new");
    await apply(rotating);
    assert.equal((await issuer.ask("org-b-client", "new")).status, 200);
    assert.deepEqual(await refusal("old"), [401, issuer.wrongSecret]);
    await apply(CLIENT);
  });

  it("a client that is no longer declared gets no token [PLN-5]", async () => {
    await apply(CLIENT, OTHER);
    await apply(OTHER);
    assert.deepEqual(await refusal("secret-of-b"), [401, "invalid_client"]);
    assert.equal((await issuer.adapter.read()).has("org-b-client"), false);
  });

  it("closing a client does not need its secret [PLN-5]", async () => {
    await apply(CLIENT);
    await apply({ ...CLIENT, enabled: false, secret: { file: "client-secrets/gone" } });
    assert.deepEqual(await refusal("secret-of-b"), [401, "invalid_client"]);
  });

  it("a closed client that is enabled by hand is drift and is closed again [PLN-5]", async () => {
    const closed = { ...CLIENT, enabled: false };
    await apply(CLIENT);
    await apply(closed);
    await issuer.setByHand("org-b-client", true);
    assert.equal((await issuer.ask("org-b-client", "secret-of-b")).status, 200);
    const [drift] = await issuer.adapter.drift(intentOf([closed]));
    assert.match(drift?.found ?? "", /^sha256:[0-9a-f]{64}$/);
    assert.equal(await apply(closed), true);
    assert.deepEqual(await refusal("secret-of-b"), [401, "invalid_client"]);
  });

  it("an open client that is disabled by hand is drift and is opened again [PLN-5]", async () => {
    await apply(CLIENT);
    await issuer.setByHand("org-b-client", false);
    assert.equal((await issuer.adapter.drift(intentOf([CLIENT]))).length, 1);
    assert.equal(await apply(CLIENT), true);
    assert.equal((await issuer.ask("org-b-client", "secret-of-b")).status, 200);
  });

  it("a token of a closed client is valid until it expires [PLN-5]", async () => {
    await apply(CLIENT);
    const token = await issuer.shortLived("org-b-client", "secret-of-b");
    const { exp = 0, iat = 0 } = decodeJwt(token);
    assert.equal(exp - iat, 2);
    await apply({ ...CLIENT, enabled: false });
    await verified(token);
    assert.deepEqual(await refusal("secret-of-b"), [401, "invalid_client"]);
  });
});
