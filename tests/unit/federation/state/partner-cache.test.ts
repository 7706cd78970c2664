import assert from "node:assert/strict";
import { appendFileSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { describe, it } from "node:test";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { openStateFolder } from "../../../../src/federation/state/folder.ts";
import { PartnerCache } from "../../../../src/federation/state/partner-cache.ts";
import { registryFiles } from "../../../support/sample-files.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

describe("PartnerCache", () => {
  it("keeps what was read for the next command, without what is torn, of another form or long unwanted", (t) => {
    const state = openStateFolder(temporaryFolder(t), systemRandom);
    const file = state.file("cache", "partners.jsonl");
    const [partner] = loadRegistry(registryFiles()).partners.map((entry) => entry.partner);
    assert.ok(partner);
    const save = (...ids: readonly string[]) => {
      const cache = new PartnerCache(state);
      for (const id of ids) cache.set(id, partner);
      cache.save([...ids, "another file of the registry"]);
    };
    const kept = () => [...new PartnerCache(state).keys()];

    save("one");
    save("one", "two");
    assert.deepEqual(
      [...new PartnerCache(state)],
      [
        ["one", partner],
        ["two", partner],
      ],
    );
    assert.equal(statSync(file).mode & 0o777, 0o600);

    appendFileSync(file, '5\n["torn", {"serverName');
    assert.deepEqual(kept(), ["one", "two"]);
    save("three", "four");
    assert.deepEqual(kept(), ["one", "two", "four"]);

    save(...Array.from({ length: 1_100 }, (_, n) => `partner ${n}`));
    assert.equal(kept().length, 1_103);
    save("one");
    assert.deepEqual(kept(), ["one"]);

    writeFileSync(file, readFileSync(file, "utf8").replace(/sha256:./, "sha256:x"));
    assert.deepEqual(kept(), []);
    save("two");
    assert.deepEqual(kept(), ["two"]);
  });
});
