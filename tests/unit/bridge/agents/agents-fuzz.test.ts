// Whatever is put in the place of agents.yaml, the last good version stays in force, and nobody is let in whom
// the file does not name.
import assert from "node:assert/strict";
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { watchAgentsFile } from "../../../../src/bridge/agents/loaded-agents.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import type { ServerName } from "../../../../src/domain/identifiers.ts";
import { agentsYaml } from "../../../support/agents.ts";
import { testKey } from "../../../support/cards.ts";
import { anyFile, HOSTILE } from "../../../support/hostile-yaml.ts";
import { recordedLog } from "../../../support/recorded-log.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

const GOOD = agentsYaml({ one: { key: await testKey("k1") } });
const ONE = "@agent_one:a.test";

function followed(t: TestContext, text: string | Buffer = GOOD) {
  const file = join(temporaryFolder(t), "agents.yaml");
  writeFileSync(file, text);
  const directory = watchAgentsFile({
    ...{ file, serverName: "a.test" as ServerName, ghostPrefix: "agent_", log: recordedLog().log },
    onRejected: () => undefined,
  });
  /** Puts a text in its place, and says what is in force then. */
  const put = async (content: string | Buffer) => {
    writeFileSync(`${file}.new`, content);
    renameSync(`${file}.new`, file);
    return directory.current();
  };
  return { put };
}

describe("hostile agents.yaml", () => {
  it("a hostile agents.yaml leaves the last good one in force, and is refused at the start [AGT-1]", async (t) => {
    const { put } = followed(t);
    for (const [name, content] of HOSTILE) {
      assert.deepEqual([...(await put(content)).byGhost.keys()], [ONE], name);
      assert.throws(
        () => followed(t, content),
        (error) => error instanceof DrawbridgeError && error.hint !== undefined,
        name,
      );
    }
  });

  it("random bytes and mangled files never admit an unnamed sender [AGT-1]", async (t) => {
    const { put } = followed(t);
    const mangled = fc
      .tuple(fc.nat(GOOD.length - 1), fc.nat(40), fc.string({ maxLength: 12 }))
      .map(([at, length, insert]) => Buffer.from(GOOD.slice(0, at) + insert + GOOD.slice(at + length)));
    const entry: Record<string, unknown> = parse(GOOD).agents.one;
    const oneKeyIsOther = fc
      .tuple(fc.constantFrom(...Object.keys(entry)), fc.jsonValue({ maxDepth: 2 }))
      .map(([key, value]) =>
        Buffer.from(JSON.stringify({ version: 1, agents: { one: { ...entry, [key]: value } } })),
      );
    const listsAreOther = fc
      .record({
        allowedServers: fc.array(fc.constantFrom("b.test", "c.test:8448", "d.test", "*.test"), {
          maxLength: 3,
        }),
        allowedSenders: fc.array(fc.constantFrom("*:b.test", "@p:c.test:8448", "@p:d.test", "*:*.test"), {
          maxLength: 3,
        }),
      })
      .map((lists) => Buffer.from(JSON.stringify({ version: 1, agents: { one: { ...entry, ...lists } } })));
    let named = 0;
    await fc.assert(
      fc.asyncProperty(fc.oneof(anyFile, mangled, oneKeyIsOther, listsAreOther), async (content) => {
        const before = await put(GOOD);
        const after = await put(content);
        const text = content.toString("utf8");
        for (const { entry } of after === before ? [] : after.byGhost.values()) {
          for (const name of [...entry.allowedServers, ...entry.allowedSenders]) {
            assert.ok(text.includes(name), `${name} is let in by ${JSON.stringify(text)}`);
            named += 1;
          }
        }
        assert.deepEqual([...(await put(GOOD)).byGhost.keys()], [ONE]);
      }),
      { numRuns: 300 },
    );
    assert.ok(named > 5, `only ${named} names were let in`);
  });
});
