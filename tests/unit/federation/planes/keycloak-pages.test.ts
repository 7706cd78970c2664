// Keycloak lists its clients in pages, between which others may add and remove some, and may refuse to change one.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, it, type TestContext } from "node:test";
import { keycloakAdapter } from "../../../../src/federation/planes/gateway/issuers.ts";
import { intentOf } from "../../../support/issuers.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

/** @param answer an answer's body, or its status */
async function adapterOf(t: TestContext, answer: (url: URL, method: string) => unknown) {
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? "", "http://keycloak.test");
    request.resume();
    const body = url.pathname.endsWith("/token")
      ? { access_token: "token" }
      : answer(url, request.method ?? "");
    const status = typeof body === "number" ? body : 200;
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  });
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const directory = temporaryFolder(t);
  writeFile(`${directory}/secret`, "secret", 0o600);
  return keycloakAdapter(
    {
      ...{ adapter: "keycloak", url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` },
      ...{ realm: "a", adminRealm: "a", adminClientId: "admin", adminClientSecret: { file: "secret" } },
      ...{ audience: "https://a.test", secretsDirectory: "." },
    } as Parameters<typeof keycloakAdapter>[0],
    directory,
  );
}

describe("Keycloak's clients", () => {
  it("a client is not missed because another one was removed while they were listed [PLN-5]", async (t) => {
    const clients = Array.from({ length: 1_200 }, (_, index) => `client-${String(index).padStart(4, "0")}`);
    let isRemoved = false;
    const adapter = await adapterOf(t, ({ searchParams }) => {
      const [first, max] = [Number(searchParams.get("first")), Number(searchParams.get("max"))];
      if (first > 0 && !isRemoved) {
        isRemoved = true;
        clients.shift();
      }
      return clients.slice(first, first + max).map((clientId) => ({ id: clientId, clientId }));
    });
    assert.deepEqual([...(await adapter.read()).keys()], clients);
  });

  it("null values of a client that others made keep no client from being listed and closed [PLN-5]", async (t) => {
    const nothing = { enabled: null, secret: null, protocolMappers: null, optionalClientScopes: null };
    const mapper = { name: "m", protocolMapper: "p", config: { value: null } };
    const others = [
      { id: "1", clientId: "1", ...nothing, defaultClientScopes: null, attributes: null },
      { id: "2", clientId: "2", attributes: { note: null }, protocolMappers: [mapper] },
      { id: "3", clientId: "3", protocolMappers: [{ ...mapper, config: null }] },
    ];
    let enabled = true;
    const adapter = await adapterOf(t, (_, method) => {
      if (method !== "GET") enabled = false;
      const attributes = { "drawbridge.owner": "org-a.example", note: null };
      return [...others, { id: "own", clientId: "own", attributes, enabled }];
    });
    assert.deepEqual([...(await adapter.read()).keys()], ["1", "2", "3", "own"]);
    await adapter.apply(intentOf([{ clientId: "own", enabled: false }]));
    assert.equal(enabled, false);
  });

  for (const status of [403, 500]) {
    it(`a client that Keycloak does not change (${status}) is named, and keeps no other from being closed [PLN-5]`, async (t) => {
      const enabled = new Set(["one", "two", "three"]);
      const names = [...enabled];
      const adapter = await adapterOf(t, ({ pathname }, method) => {
        if (method === "GET") {
          return names.map((clientId) => ({ id: clientId, clientId, enabled: enabled.has(clientId) }));
        }
        const name = pathname.split("/").at(-1) ?? "";
        if (name === "two") return status;
        enabled.delete(name);
        return {};
      });
      const { failures } = await adapter.apply(
        intentOf(names.map((clientId) => ({ clientId, enabled: false }))),
      );
      assert.deepEqual([...enabled], ["two"]);
      assert.equal(failures.get("two"), "issuer_refused");
    });
  }
});
