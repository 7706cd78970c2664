import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { initAsync, type OlmMachine } from "@matrix-org/matrix-sdk-crypto-wasm";
import { receiveChanges, sdkUsers } from "../../../../src/bridge/crypto/olm-machine-adapter.ts";
import { NO_CHANGES } from "../../../../src/bridge/matrix/device-changes.ts";
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

describe("to-device messages that the library refuses together", () => {
  it("are taken in one by one, and a panic on one of them is passed on", async () => {
    const panic = Object.assign(new Error("unreachable"), { name: "RuntimeError" });
    const machine = {
      receiveSyncChangesMsc4186: async (text: string) => {
        const [first, ...others] = JSON.parse(text) as { type: string }[];
        if (others.length > 0 || first?.type === "refused") throw new Error("refused");
        if (first?.type === "panic") throw panic;
        return [];
      },
    } as unknown as OlmMachine;
    const receive = (...types: string[]) =>
      receiveChanges(machine, { ...NO_CHANGES, toDevice: types.map((type) => ({ type })) });
    assert.deepEqual(await receive("fine", "refused"), []);
    await assert.rejects(receive("fine", "panic"), panic);
  });
});
