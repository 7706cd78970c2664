// What is Keycloak's own: settings changed by hand, clients of others, and the account that we act as.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { decodeJwt } from "jose";
import { AUDIENCE, intentOf, type KeycloakUnderTest, keycloakIssuer } from "../support/issuers.ts";

const folder = mkdtempSync(join(tmpdir(), "drawbridge test "));
const CLIENT = { clientId: "org-b-client", secret: { file: "client-secrets/b" } };
let issuer: KeycloakUnderTest;

before(async () => {
  issuer = await keycloakIssuer(folder);
  issuer.putSecret("b", "secret-of-b");
});
after(async () => {
  await issuer?.close();
  rmSync(folder, { recursive: true, force: true });
});

async function apply(...clients: Parameters<typeof intentOf>[0]) {
  return await issuer.adapter.apply(intentOf(clients));
}

async function driftKinds(): Promise<readonly (readonly [string, string])[]> {
  return (await issuer.adapter.drift(intentOf([CLIENT]))).map(({ subject, kind }) => [subject, kind]);
}

async function idOf(clientId: string): Promise<string> {
  return String((await issuer.client(clientId))?.["id"]);
}

const claimMapper = {
  name: "somebody-else",
  protocol: "openid-connect",
  protocolMapper: "oidc-hardcoded-claim-mapper",
  config: { "claim.name": "azp", "claim.value": "org-a-client", "access.token.claim": "true" },
};

describe("Keycloak as the issuer", () => {
  for (const [what, change] of [
    [
      "a longer token life",
      (at: string) => issuer.admin("PUT", at, { attributes: { "access.token.lifespan": "86400" } }),
    ],
    [
      "another algorithm",
      (at: string) =>
        issuer.admin("PUT", at, { attributes: { "access.token.signed.response.alg": "RS256" } }),
    ],
    [
      "a browser flow",
      (at: string) => issuer.admin("PUT", at, { standardFlowEnabled: true, redirectUris: ["*"] }),
    ],
    ["all roles", (at: string) => issuer.admin("PUT", at, { fullScopeAllowed: true })],
    ["another secret", (at: string) => issuer.admin("POST", `${at}/client-secret`)],
    [
      "a mapper for another claim",
      (at: string) => issuer.admin("POST", `${at}/protocol-mappers/models`, claimMapper),
    ],
    [
      "another audience",
      async (at: string) => {
        const mappers = (await issuer.admin("GET", `${at}/protocol-mappers/models`)).body as { id: string }[];
        const [mapper] = mappers;
        return issuer.admin("PUT", `${at}/protocol-mappers/models/${mapper?.id}`, {
          ...mapper,
          config: { "included.custom.audience": "https://elsewhere.example", "access.token.claim": "true" },
        });
      },
    ],
    [
      "a scope more",
      async (at: string) => {
        const scopes = (await issuer.admin("GET", "client-scopes")).body as { id: string; name: string }[];
        const roles = scopes.find(({ name }) => name === "roles");
        return issuer.admin("PUT", `${at}/default-client-scopes/${roles?.id}`);
      },
    ],
  ] as const) {
    it(`${what}, given to a client by hand, is drift, and is undone [PLN-5]`, async () => {
      assert.deepEqual([...(await apply(CLIENT)).failures], []);
      const { status } = await change(`clients/${await idOf(CLIENT.clientId)}`);
      assert.ok(status < 300, `by hand: ${status}`);
      assert.deepEqual(await driftKinds(), [["org-b-client", "edited"]]);
      assert.deepEqual(await apply(CLIENT), { changed: true, failures: new Map() });
      assert.deepEqual(await driftKinds(), []);
      const { token } = await issuer.ask("org-b-client", "secret-of-b");
      const claims = decodeJwt(token);
      assert.deepEqual([claims["azp"], claims.aud], ["org-b-client", AUDIENCE]);
    });
  }

  it("a client that somebody else made is left alone, and one with a registered name is adopted and closed later [PLN-5]", async () => {
    await issuer.admin("POST", "clients", {
      clientId: "foreign-client",
      secret: "theirs",
      publicClient: false,
    });
    await issuer.admin("POST", "clients", {
      clientId: "adopted-client",
      secret: "theirs",
      publicClient: false,
    });
    const adopted = { clientId: "adopted-client", secret: { file: "client-secrets/b" } };
    assert.deepEqual([...(await apply(CLIENT, adopted)).failures], []);
    assert.equal((await issuer.ask("adopted-client", "secret-of-b")).status, 200);
    assert.deepEqual([...(await apply(CLIENT)).failures], []);
    assert.equal((await issuer.client("foreign-client"))?.["enabled"], true);
    assert.equal((await issuer.client("adopted-client"))?.["enabled"], false, "declared no more, so closed");
    assert.equal((await issuer.ask("adopted-client", "secret-of-b")).status, 401);

    // Drift is seen and undone as long as the client is there.
    await issuer.admin("PUT", `clients/${await idOf("adopted-client")}`, { enabled: true });
    assert.deepEqual(await driftKinds(), [["adopted-client", "enabled"]]);
    await apply(CLIENT);
    assert.equal((await issuer.client("adopted-client"))?.["enabled"], false);
    assert.deepEqual(await driftKinds(), []);
  });

  it("a client that was there before its partner was closed is disabled and looked after from then on [PLN-5]", async () => {
    for (const [clientId, enabled] of [
      ["enabled-before", true],
      ["disabled-before", false],
    ] as const) {
      await issuer.admin("POST", "clients", { clientId, enabled, secret: "theirs", publicClient: false });
      // As it is rendered for a closed partner that may invoke nothing: without a secret.
      assert.deepEqual([...(await apply(CLIENT, { clientId, enabled: false })).failures], []);
      assert.equal((await issuer.client(clientId))?.["enabled"], false);
      assert.deepEqual([...(await apply(CLIENT)).failures], []);
      await issuer.admin("PUT", `clients/${await idOf(clientId)}`, { enabled: true });
      assert.deepEqual(await driftKinds(), [[clientId, "enabled"]]);
      await apply(CLIENT);
      assert.equal((await issuer.client(clientId))?.["enabled"], false);
    }
  });

  it("a client with every declared setting that was not taken over yet is drift, and is taken over [PLN-5]", async () => {
    const clientId = "org-b-client";
    await apply(CLIENT);
    await issuer.admin("PUT", `clients/${await idOf(clientId)}`, {
      attributes: { "drawbridge.owner": null },
    });
    assert.deepEqual(await driftKinds(), [[clientId, "edited"]]);
    assert.deepEqual([...(await apply(CLIENT)).failures], []);
    assert.deepEqual(await driftKinds(), []);
    await apply();
    assert.equal((await issuer.client(clientId))?.["enabled"], false, "it is no client of ours to delete");
  });

  it("a client of Keycloak's own, or the one that we act as, is refused and not touched", async () => {
    for (const clientId of ["realm-management", "drawbridge-control"]) {
      const before = await issuer.client(clientId);
      for (const enabled of [true, false]) {
        const { failures } = await apply(CLIENT, { clientId, enabled, secret: { file: "client-secrets/b" } });
        assert.deepEqual([...failures], [[clientId, "issuer_refused"]]);
      }
      assert.deepEqual(await issuer.client(clientId), before);
    }
  });

  it("a secret that cannot be read holds up no other client", async () => {
    const broken = { clientId: "broken-client", secret: { file: "client-secrets/nowhere" } };
    const { failures } = await apply(broken, CLIENT);
    assert.deepEqual([...failures], [["broken-client", "secret_unavailable"]]);
    assert.equal((await issuer.ask("org-b-client", "secret-of-b")).status, 200);
  });
});
