// A real Envoy in front of tokens from a real Keycloak.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { decodeJwt } from "jose";
import { systemClock } from "../../src/domain/clock.ts";
import { agentDouble, endGateway, eventually, testGateway } from "../support/gateway.ts";
import { AUDIENCE, intentOf, keycloakIssuer } from "../support/issuers.ts";
import { temporaryFolder } from "../support/temporary.ts";

describe("Envoy with Keycloak's tokens", () => {
  it("Envoy takes Keycloak's tokens, and a closed client's last one until it ends [PLN-5]", async (t) => {
    const folder = temporaryFolder(t);
    const issuer = await keycloakIssuer(folder);
    t.after(() => issuer.close());
    const agent = await agentDouble();
    t.after(() => agent.close());
    issuer.putSecret("b", "secret-of-b");
    const client = { clientId: "org-b-client", secret: { file: "client-secrets/b" } };
    const stranger = { clientId: "org-c-client", secret: { file: "client-secrets/b" } };
    assert.deepEqual([...(await issuer.adapter.apply(intentOf([client, stranger]))).failures], []);
    const gateway = await testGateway(folder, {
      issuer: { url: issuer.url, jwksUrl: issuer.jwksUrl, audience: AUDIENCE },
      agents: { "docs-qa": { upstream: agent.url, invokePath: "/rpc", clients: ["org-b-client"] } },
    });
    t.after(() => endGateway(gateway));
    const statusOf = async (token: string) => {
      const response = await fetch(`${gateway.url}/rpc`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}` },
        body: "{}",
      });
      await response.body?.cancel();
      return response.status;
    };

    assert.equal(await statusOf((await issuer.ask("org-b-client", "secret-of-b")).token), 200);
    assert.equal(agent.received[0]?.headers["x-azp"], "org-b-client");
    assert.equal(await statusOf((await issuer.ask("org-c-client", "secret-of-b")).token), 403);

    const token = await issuer.shortLived("org-b-client", "secret-of-b");
    await issuer.adapter.apply(intentOf([{ ...client, enabled: false }, stranger]));
    assert.equal((await issuer.ask("org-b-client", "secret-of-b")).status, 401);
    assert.equal(await statusOf(token), 200);
    await eventually("the token's end", async () => ((await statusOf(token)) === 401 ? true : undefined));
    const endsAt = (decodeJwt(token).exp ?? 0) * 1_000;
    const lateMs = systemClock.now() - endsAt;
    assert.ok(lateMs >= 0 && lateMs <= 3_000, `refused ${lateMs} ms after its end`);
  });
});
