import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createKeysClaim, createPatience, readableKeys } from "../../../../src/bridge/matrix/keys-query.ts";
import { ok, retry } from "../../../../src/bridge/matrix/request-result.ts";
import { systemClock } from "../../../../src/domain/clock.ts";

const EVE = "@eve:evil.test";
const ALICE = "@alice:a.test";

describe("readable keys", () => {
  it("of one user are those of 200 devices, the owner's signed ones first, and no other user has fewer for it [ENC-7] [DEL-10]", () => {
    const device = (signatures: Readonly<Record<string, string>>) => ({ signatures: { [EVE]: signatures } });
    const many = Array.from({ length: 5_000 }, (_, index) => [
      `D${index}`,
      device({ [`ed25519:D${index}`]: "s" }),
    ]);
    const signed = device({ "ed25519:PHONE": "s", "ed25519:master": "s" });
    const of = (devices: object) => ({ device_keys: { [EVE]: devices, [ALICE]: { PHONE: {} } } });
    const read = readableKeys("keys_query", of({ ...Object.fromEntries(many), PHONE: signed }));
    const { [EVE]: eve = {}, [ALICE]: alice } = read["device_keys"] as Record<
      string,
      Record<string, unknown>
    >;
    assert.equal(Object.keys(eve).length, 200);
    assert.equal(eve["PHONE"], signed);
    assert.deepEqual(alice, { PHONE: {} });
    const few = of({ ["D".repeat(256)]: {}, ["D".repeat(255)]: {} });
    assert.deepEqual(readableKeys("keys_query", few), of({ ["D".repeat(255)]: {} }));
  });

  it("of a server's users are those of 2,000 devices in an answer, and who has few loses none for who has many [ENC-7] [DEL-10]", () => {
    const devices = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, n) => [`D${n}`, {}]));
    const many = Array.from({ length: 100 }, (_, n) => [`@u${n}:evil.test`, devices(150)]);
    const few = { "@few:evil.test": devices(19), [ALICE]: devices(150) };
    const read = readableKeys("keys_query", { device_keys: { ...Object.fromEntries(many), ...few } });
    const keys = Object.entries(read["device_keys"] as Record<string, object>);
    const counts = Object.fromEntries(keys.map(([user, of]) => [user, Object.keys(of).length]));
    assert.deepEqual([counts["@few:evil.test"], counts[ALICE], counts["@u0:evil.test"]], [19, 150, 19]);
    assert.equal(
      Object.values(counts).reduce((sum, count) => sum + count),
      101 * 19 + 150,
    );
  });

  it("of one user of the homeserver's own that are too large for an answer keep no other's away [ENC-7] [DEL-10]", async () => {
    const users = [ALICE, "@mallory:a.test", "@bob:a.test", "@carol:b.test"];
    const isLarge = (user: string) => user.startsWith("@mallory");
    const claimed = await createKeysClaim(createPatience(systemClock))(
      { one_time_keys: Object.fromEntries(users.map((user) => [user, {}])) },
      "a.test",
      async ({ one_time_keys: asked }) =>
        Object.keys(asked as object).some(isLarge)
          ? retry("too_large")
          : ok({ one_time_keys: asked, failures: {} }),
    );
    const others = users.filter((user) => !isLarge(user)).map((user) => [user, {}]);
    assert.deepEqual(claimed, ok({ one_time_keys: Object.fromEntries(others), failures: {} }));
  });

  it("of a claim hold nothing of a text that stands in the place of an object [DEL-10]", async () => {
    const answer = { one_time_keys: "text", failures: "text" };
    const claimed = await createKeysClaim(createPatience(systemClock))(
      { one_time_keys: { [EVE]: {} } },
      "a.test",
      async () => ok(answer),
    );
    assert.deepEqual(claimed, ok({ one_time_keys: {}, failures: {} }));
  });
});
