import assert from "node:assert/strict";
import type { lookup } from "node:dns";
import { describe, it } from "node:test";
import { assertPublicHost, isPublicAddress, publicLookup } from "../../../src/runtime/public-addresses.ts";

/** A resolver that answers each name with these addresses. */
const resolvingTo = (...addresses: string[]) =>
  ((_host: string, _options: unknown, callback: (error: null, found: unknown) => void) =>
    callback(
      null,
      addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 })),
    )) as unknown as typeof lookup;

const resolved = (all: boolean, ...addresses: string[]) =>
  new Promise<unknown>((resolve) => {
    publicLookup(resolvingTo(...addresses))("agent.test", { all }, (error, found) =>
      resolve(error === null ? found : (error as NodeJS.ErrnoException).code),
    );
  });

describe("public addresses", () => {
  it("addresses that are private, local, mapped or reserved are not public [AGT-4]", () => {
    const refused = [
      ..."0.0.0.0 10.1.2.3 100.64.0.1 127.0.0.1 127.255.255.254 169.254.169.254 172.16.0.1 172.31.255.255".split(
        " ",
      ),
      ..."192.0.0.8 192.168.1.1 198.18.0.1 224.0.0.1 240.0.0.1 255.255.255.255 :: ::1 fe80::1 fc00::1".split(
        " ",
      ),
      ..."fd12:3456::1 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: 2001:db8::1".split(
        " ",
      ),
      ..."::127.0.0.1 ::8.8.8.8 ::ffff:0:127.0.0.1 192.88.99.1 3fff::1 3fff:fff::1 5f00::1 100::1 100:0:0:1::1".split(
        " ",
      ),
      ..."64:ff9b:1::1 2001:20::1 2001:1ff::1 fec0::1 1::1 4000::1 fe80::1%lo ::ffff:192.168.1.1".split(" "),
      ..."192.0.2.1 198.51.100.1 203.0.113.1 198.19.255.255".split(" "),
      ..."localhost 127.1 example.org".split(" "),
    ];
    for (const address of refused) assert.equal(isPublicAddress(address), false, address);
    for (const address of [
      "8.8.8.8",
      "172.32.0.1",
      "100.128.0.1",
      "2606:4700::1111",
      "2001:4860::8888",
      "::ffff:8.8.8.8",
    ]) {
      assert.equal(isPublicAddress(address), true, address);
    }
  });

  it("an address in a URL is recognised however it is written [AGT-4]", () => {
    for (const url of [
      "http://2130706433/",
      "http://0x7f.1/",
      "http://[::1]:80/",
      "https://[::ffff:10.0.0.1]/",
    ]) {
      assert.throws(() => assertPublicHost(url), { code: "ERR_ADDRESS_NOT_PUBLIC" }, url);
    }
    assert.doesNotThrow(() => assertPublicHost("https://8.8.8.8/"));
    assert.doesNotThrow(() => assertPublicHost("https://agent.test/"));
  });

  it("a lookup returns a name's public addresses, and fails when it has none [AGT-4]", async () => {
    const both = ["127.0.0.1", "8.8.8.8", "::1"];
    assert.deepEqual(await resolved(true, ...both), [{ address: "8.8.8.8", family: 4 }]);
    assert.equal(await resolved(false, ...both), "8.8.8.8");
    assert.equal(await resolved(true, "10.0.0.1", "fe80::1"), "ERR_ADDRESS_NOT_PUBLIC");
    assert.equal(await resolved(false), "ERR_ADDRESS_NOT_PUBLIC");
  });
});
