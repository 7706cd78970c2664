import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { freePort } from "../../../../lab/ports.ts";
import { ConnectProxy } from "../../../../lab/supervisor/connect-proxy.ts";
import { matrixCanonicalJson } from "../../../../src/domain/canonical-json.ts";
import type { ServerName } from "../../../../src/domain/identifiers.ts";
import { signedRequests, signJson } from "../../../../src/federation/homeserver/signed-request.ts";
import { http2Server } from "../../../support/http-server.ts";

// Matrix specification, appendices, "Cryptographic Test Vectors".
const SEED = "YJDBA9Xnr2sVqXD9Vj7XVUnmFZcZrlw8Md7kMW+3XA1";
const SIGNED: readonly [unknown, string][] = [
  [{}, "K8280/U9SSy9IVtjBuVeLr+HpOB4BQFWbg+UZaADMtTdGYI7Geitb76LTrr5QV/7Xg4ahLwYGYZzuHGZKM5ZAQ"],
  [
    { one: 1, two: "Two" },
    "KqmLSbO39/Bzb0QIYE82zqLwsA+PDzYIpIRA2sRQ4sL53+sN6/fpNSoqE7BP7vBZhG6kYdD13EIMJpvhJI+6Bw",
  ],
];

describe("signed federation requests", () => {
  it("no request is sent to what is no server name [PLN-2]", async (t) => {
    const signed = signedRequests({ name: "a.test" as ServerName, signingKey: `ed25519 1 ${SEED}` });
    t.after(() => signed.close());
    for (const server of ["a.test/path?", "a.test@127.0.0.1:9", "a.test#", ""]) {
      await assert.rejects(signed.request(server as ServerName, "/x"), {
        message: "the destination is no server name",
      });
    }
  });

  it("a server is asked by HTTP/1.1, also through a proxy, and an answer above 1 MiB says nothing [PLN-2]", async (t) => {
    const versions: string[] = [];
    const server = await http2Server(t, (request, response) => {
      versions.push(request.httpVersion);
      const bytes = 1024 * 1024 + (request.url === "/fits" ? 0 : 1);
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ x: "" }).padEnd(bytes));
    });
    const [port, name] = [await freePort(), `localhost:${server}` as ServerName];
    const servers = new Map([[name, { organisation: "a", port: server }]]);
    const proxy = new ConnectProxy({ ports: { a: port }, servers });
    await proxy.listen();
    t.after(() => proxy.close());
    for (const proxyUrl of [undefined, `http://127.0.0.1:${port}`]) {
      const signed = signedRequests({
        name: "a.test" as ServerName,
        signingKey: `ed25519 1 ${SEED}`,
        proxyUrl,
      });
      t.after(() => signed.close());
      assert.deepEqual((await signed.request(name, "/fits")).body, { x: "" });
      assert.deepEqual((await signed.request(name, "/larger")).body, {});
    }
    assert.deepEqual(versions, ["1.1", "1.1", "1.1", "1.1"]);
  });

  it("JSON is signed as the specification's vectors say", () => {
    for (const [value, signature] of SIGNED) {
      assert.deepEqual(signJson(value, `ed25519 1 ${SEED}\n`), { keyId: "ed25519:1", signature });
    }
  });

  it("canonical JSON has the value's meaning and sorted members, whatever their order was", () => {
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: true }), (value) => {
        const text = matrixCanonicalJson(value);
        assert.deepEqual(JSON.parse(text), JSON.parse(JSON.stringify(value)));
        assert.equal(matrixCanonicalJson(reversed(value)), text);
      }),
    );
  });

  function reversed(value: unknown): unknown {
    if (Array.isArray(value)) return value.map(reversed);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(
      Object.entries(value)
        .reverse()
        .map(([key, member]) => [key, reversed(member)]),
    );
  }
});
