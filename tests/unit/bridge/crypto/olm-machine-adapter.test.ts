import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { initAsync } from "@matrix-org/matrix-sdk-crypto-wasm";
import { sdkUsers } from "../../../../src/bridge/crypto/olm-machine-adapter.ts";
import { parseUserId } from "../../../../src/domain/identifiers.ts";

await initAsync();

describe("users as the library reads them", () => {
  it("one whose ID the library refuses is skipped, and those beside it are taken", () => {
    const ids = ["@a:a.test", "@a:evil.test:99999", "@a:[:::::]", "@a:[1.2.3.4]", "@b:b.test"];
    const users = ids.map(parseUserId).filter((user) => user !== undefined);
    assert.equal(users.length, ids.length);
    assert.deepEqual(
      sdkUsers(users).map((user) => user.toString()),
      ["@a:a.test", "@b:b.test"],
    );
  });
});
