// Keycloak lists its clients in pages, between which others may add and remove some.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, it } from "node:test";
import { keycloakAdapter } from "../../../../src/federation/planes/gateway/issuers.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

describe("Keycloak's clients", () => {
  it("a client is not missed because another one was removed while they were listed [PLN-5]", async (t) => {
    const clients = Array.from({ length: 1_200 }, (_, index) => `client-${String(index).padStart(4, "0")}`);
    let isRemoved = false;
    const server = createServer((request, response) => {
      const { pathname, searchParams } = new URL(request.url ?? "", "http://keycloak.test");
      const answer = (body: unknown) =>
        response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
      request.resume();
      if (pathname.endsWith("/token")) return void answer({ access_token: "token" });
      const [first, max] = [Number(searchParams.get("first")), Number(searchParams.get("max"))];
      if (first > 0 && !isRemoved) {
        isRemoved = true;
        clients.shift();
      }
      return void answer(clients.slice(first, first + max).map((clientId) => ({ id: clientId, clientId })));
    });
    await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
    t.after(() => server.close());
    const directory = temporaryFolder(t);
    writeFile(`${directory}/secret`, "secret", 0o600);
    const adapter = keycloakAdapter(
      {
        ...{ adapter: "keycloak", url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` },
        ...{ realm: "a", adminRealm: "a", adminClientId: "admin", adminClientSecret: { file: "secret" } },
        ...{ audience: "https://a.test", secretsDirectory: "." },
      } as Parameters<typeof keycloakAdapter>[0],
      directory,
    );
    assert.deepEqual([...(await adapter.read()).keys()], clients);
  });
});
