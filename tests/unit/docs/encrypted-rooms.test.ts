// The settings that the guide to encrypted rooms shows are settings of the bridge.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { BridgeConfigFile } from "../../../src/bridge/config.ts";
import { parseYaml } from "../../../src/runtime/load-yaml.ts";
import { ROOT } from "../../support/temporary.ts";

const BASE = readFileSync(`${ROOT}/tests/goldens/bridge/init/bridge.yaml`, "utf8");
const GUIDE = readFileSync(`${ROOT}/docs/operating/encrypted-rooms.md`, "utf8");
const EXAMPLES = [...GUIDE.matchAll(/```yaml\n# bridge\.yaml\n([\s\S]*?)```/g)].map(([, text = ""]) => text);

describe("encrypted rooms", () => {
  it("the guide's examples of bridge.yaml are read as they stand [ENC-9]", () => {
    const read = EXAMPLES.map(
      (text) => parseYaml(BridgeConfigFile, `${BASE}\n${text}`, "bridge.yaml").encryption,
    );
    assert.equal(read.length, 2);
    assert.deepEqual(
      read.map(({ mode, senderDevices, verifiedIdentities }) => [
        mode,
        senderDevices,
        verifiedIdentities.length,
      ]),
      [
        ["on", "allow_all", 0],
        ["on", "verified", 1],
      ],
    );
  });
});
