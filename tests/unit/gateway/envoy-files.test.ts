import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { gatewayConfigFile } from "../../../src/gateway/config.ts";
import { applyLive, NO_STATS, placeAll, placeFile } from "../../../src/gateway/envoy-files.ts";
import { LIVE_FILES, type LiveFile, render } from "../../../src/gateway/render/render.ts";
import { testIntent } from "../../support/gateway.ts";
import { temporaryFolder } from "../../support/temporary.ts";

describe("placeFile", () => {
  it("a file is replaced by a rename, and no other file is left in its folder", (t) => {
    const folder = temporaryFolder(t);
    placeFile(folder, "live/rds.json", "one");
    const before = statSync(`${folder}/live/rds.json`).ino;
    placeFile(folder, "live/rds.json", "two");
    assert.notEqual(statSync(`${folder}/live/rds.json`).ino, before);
    assert.equal(readFileSync(`${folder}/live/rds.json`, "utf8"), "two");
    assert.deepEqual(readdirSync(`${folder}/live`), ["rds.json"]);
  });

  it("a file with the same content is not written", (t) => {
    const folder = temporaryFolder(t);
    placeFile(folder, "live/lds.json", "one");
    const before = statSync(`${folder}/live/lds.json`).ino;
    placeFile(folder, "live/lds.json", "one");
    assert.equal(statSync(`${folder}/live/lds.json`).ino, before);
  });
});

function rendered(folder: string, agents: readonly string[]) {
  const config = gatewayConfigFile(folder).parse({
    version: 1,
    listen: { port: 8080 },
    adminPort: 9901,
    issuer: { url: "http://127.0.0.1:9000", jwksUrl: "http://127.0.0.1:9000/jwks", audience: "urn:org-a" },
  });
  const intent = testIntent({
    agents: Object.fromEntries(
      agents.map((name) => [
        name,
        {
          upstream: "http://127.0.0.1:4100",
          cardPath: `/${name}/card`,
          invokePath: `/${name}/rpc`,
          clients: ["org-b-client"],
        },
      ]),
    ),
    quotas: { default: { perMinute: 60, burst: 20 } },
  });
  return render(config, intent, folder);
}

describe("applyLive", () => {
  for (const [what, from, to] of [
    ["an agent comes", ["a"], ["a", "b"]],
    ["an agent goes", ["a", "b"], ["a"]],
    ["one goes as another comes", ["a"], ["b"]],
  ] as const) {
    it(`while ${what}, no route ever names a cluster that is not there`, async (t) => {
      const folder = temporaryFolder(t);
      const [current, next] = [rendered(folder, from), rendered(folder, to)];
      placeAll(folder, current);
      const read = (file: LiveFile) => readFileSync(join(folder, LIVE_FILES[file]), "utf8");
      // Between two waits Envoy takes up what was written in any order.
      let clusters = [read("cds")];
      let routes = [read("rds")];
      let steps = 0;
      const admin = {
        stats: async () => NO_STATS,
        waitForVersions: async (versions: Partial<Record<LiveFile, string>>) => {
          steps += 1;
          for (const [file, version] of Object.entries(versions)) {
            assert.equal(JSON.parse(read(file as LiveFile)).version_info, version);
          }
          clusters.push(read("cds"));
          routes.push(read("rds"));
          const named = [...routes.join().matchAll(/"cluster": "([^"]+)"/g)].map((match) => match[1]);
          for (const cluster of named) {
            for (const text of clusters) assert.ok(text.includes(`"name": "${cluster}"`), cluster);
          }
          [clusters, routes] = [[read("cds")], [read("rds")]];
        },
      };
      await applyLive(folder, current, next, admin, new AbortController().signal);
      assert.ok(steps >= 3);
      for (const file of ["cds", "lds", "rds"] as const)
        assert.equal(read(file), next.files[LIVE_FILES[file]]);
    });
  }
});
