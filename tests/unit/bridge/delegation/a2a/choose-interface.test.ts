import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { chooseInterface } from "../../../../../src/bridge/delegation/a2a/choose-interface.ts";

const CARD_URL = "https://b.test/.well-known/agent-card.json";
const offer = (url: string, protocolBinding = "JSONRPC", protocolVersion = "1.0", tenant?: string) => ({
  url,
  protocolBinding,
  protocolVersion,
  ...(tenant !== undefined && { tenant }),
});
const choose = (
  offers: ReturnType<typeof offer>[],
  cardUrl = CARD_URL,
  allowedOrigins: readonly string[] = [],
) =>
  chooseInterface(
    { supportedInterfaces: offers, capabilities: {} },
    { cardUrl, allowedOrigins: [...allowedOrigins] },
  );

describe("choice of an agent's interface", () => {
  it("protocol 1.0 is preferred to 0.3, and the card's order decides otherwise [DEL-7]", () => {
    const chosen = choose([
      offer("https://b.test/old", "JSONRPC", "0.3"),
      offer("https://b.test/grpc", "GRPC"),
      offer("https://b.test/rest", "HTTP+JSON"),
      offer("https://b.test/rpc"),
    ]);
    assert.deepEqual(chosen, {
      url: "https://b.test/rest",
      binding: "HTTP+JSON",
      version: "1.0",
      tenant: "",
    });
    assert.equal(choose([offer("https://b.test/old", "JSONRPC", "0.3.0")])?.version, "0.3");
    assert.equal(choose([offer("https://b.test/rpc", "jsonrpc", "1.0", "acme")])?.tenant, "acme");
  });

  for (const [why, url] of [
    ["another scheme", "ftp://b.test/rpc"],
    ["a script", "javascript:alert(1)"],
    ["a file", "file:///etc/passwd"],
    ["credentials", "https://user:secret@b.test/rpc"],
    ["a fragment", "https://b.test/rpc#x"],
    ["no URL at all", "/rpc"],
    ["plain HTTP under an HTTPS card", "http://b.test/rpc"],
    ["another host", "https://internal.test/rpc"],
    ["another port", "https://b.test:8443/rpc"],
    ["a part of the card's host", "https://test/rpc"],
    ["the card's host as a part of its own", "https://b.test.evil.test/rpc"],
    ["an address", "https://169.254.169.254/latest"],
  ] as const) {
    it(`an interface with ${why} is not called`, () => assert.equal(choose([offer(url)]), undefined));
  }

  it("an interface at an origin that the operator lists is called, and at no other [AGT-3] [AGT-4]", () => {
    const elsewhere = [offer("https://evil.test/rpc"), offer("https://agents.b.test/rpc")];
    assert.equal(choose(elsewhere), undefined);
    assert.equal(choose(elsewhere, CARD_URL, ["https://agents.b.test"])?.url, "https://agents.b.test/rpc");
    assert.equal(choose(elsewhere, CARD_URL, ["https://agents.b.test:8443"]), undefined);
  });

  it("plain HTTP is called only when the card came by plain HTTP", () => {
    assert.ok(choose([offer("http://127.0.0.1:9/rpc")], "http://127.0.0.1:9/card"));
    const listed = ["http://agents.b.test"];
    assert.equal(choose([offer("http://agents.b.test/rpc")], CARD_URL, listed), undefined);
  });

  it("versions and bindings that the bridge does not speak are skipped", () => {
    for (const version of ["2.0", "0.2", "", "1.0-beta", "10"]) {
      assert.equal(choose([offer("https://b.test/rpc", "JSONRPC", version)]), undefined, version);
    }
    assert.equal(choose([offer("https://b.test/rpc", "GRPC")]), undefined);
    assert.equal(choose([]), undefined);
  });
});
