// Which of several changed files are brought into force, and in what order, where Envoy takes only some of them.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { describe, it, type TestContext } from "node:test";
import { stringify } from "yaml";
import { sha256Tagged } from "../../../src/domain/digest.ts";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import { applyChanges, prepare } from "../../../src/gateway/apply-changes.ts";
import { NO_STATS } from "../../../src/gateway/envoy-files.ts";
import { loadSources, type Reading, type RefusedFile } from "../../../src/gateway/source-files.ts";
import { admissionFiles } from "../../support/gateway.ts";
import { temporaryFolder, writeFile } from "../../support/temporary.ts";

const AGENT = {
  ...{ upstream: "http://127.0.0.1:4100", cardPath: "/docs/card", invokePath: "/docs/rpc" },
  clients: ["org-b-client"],
};
const QUOTAS = { default: { perMinute: 60, burst: 20 } };

/** A gateway in whose folder the test writes; its Envoy takes no listener on port 1. */
async function gateway(t: TestContext) {
  const folder = temporaryFolder(t);
  const write = (name: string, value: unknown) => writeFile(`${folder}/${name}.yaml`, stringify(value));
  const withClients = (clients: readonly string[]) =>
    admissionFiles({ agents: { docs: { ...AGENT, clients: [...clients] } }, quotas: QUOTAS }).invocation;
  const listeningOn = (port: number) => ({
    ...{ version: 1, listen: { port }, adminPort: 9901, envoy: { binary: "true" } },
    issuer: { url: "http://127.0.0.1:9000", jwksUrl: "http://127.0.0.1:9000/jwks", audience: "urn:org-a" },
  });
  write("gateway", listeningOn(8080));
  write("publication", { version: 1, cards: {} });
  write("invocation", withClients(["org-b-client"]));
  const tried: string[] = [];
  /** From when on nothing can be written: a folder stands where each file is staged. */
  const disk: { isFull?: "at once" | "after a refusal" } = {};
  const fill = () => {
    const staged = ["validate.json", "live_cds.json", "live_lds.json", "live_rds.json"];
    for (const file of staged) mkdirSync(`${folder}/envoy/staging/${file}`, { recursive: true });
  };
  const admin = {
    stats: async () => NO_STATS,
    waitForVersions: async (versions: object) => {
      if (!("rds" in versions) || "cds" in versions) return;
      const isTaken = !readFileSync(`${folder}/envoy/live/lds.json`, "utf8").includes('"port_value": 1\n');
      const isOpen = readFileSync(`${folder}/envoy/live/rds.json`, "utf8").includes("org-b-client");
      tried.push(`${isTaken ? "old" : "refused"} listener, ${isOpen ? "open" : "closed"}`);
      if (!isTaken && disk.isFull === "after a refusal") fill();
      if (!isTaken) throw new DrawbridgeError("program_failed", "Envoy refuses lds.json", { hint: "" });
    },
  };
  const read = (name: string): Reading => {
    const file = `${folder}/${name}.yaml`;
    const bytes = readFileSync(file);
    return { file, bytes, digest: sha256Tagged(bytes) };
  };
  let inForce = await prepare(loadSources(`${folder}/gateway.yaml`));
  let refused: readonly RefusedFile[] = [];
  const apply = async () => {
    rmSync(`${folder}/envoy/staging`, { recursive: true, force: true });
    if (disk.isFull === "at once") fill();
    const readings = {
      ...{ gateway: read("gateway"), publication: read("publication"), invocation: read("invocation") },
    };
    const changed = await applyChanges(inForce, readings, refused, admin, AbortSignal.timeout(10_000));
    ({ inForce, refused } = changed);
    const report = { tried: tried.splice(0), refused: refused.map(({ file, reason }) => [file, reason]) };
    return report;
  };
  return { disk, write, withClients, listeningOn, apply };
}

describe("applyChanges", () => {
  it("a content that Envoy has refused is not tried again before a new one, and stays reported [PLN-5]", async (t) => {
    const { write, withClients, listeningOn, apply } = await gateway(t);
    const refused = [["gateway", "refused_by_envoy"]];
    write("gateway", listeningOn(1));
    assert.deepEqual(await apply(), { tried: ["refused listener, open"], refused });
    write("invocation", withClients([]));
    assert.deepEqual(await apply(), { tried: ["old listener, closed"], refused });
    assert.deepEqual(await apply(), { tried: ["refused listener, closed"], refused });
    write("gateway", listeningOn(8081));
    assert.deepEqual(await apply(), { tried: ["old listener, closed"], refused: [] });
  });

  it("a change that cannot be written, as on a full disk, is reported and tried again [PLN-5]", async (t) => {
    const { disk, write, withClients, apply } = await gateway(t);
    disk.isFull = "at once";
    write("invocation", withClients([]));
    const refused = [["invocation", "refused_by_envoy"]];
    assert.deepEqual(await apply(), { tried: [], refused });
    assert.deepEqual(await apply(), { tried: [], refused });
    delete disk.isFull;
    assert.deepEqual(await apply(), { tried: ["old listener, closed"], refused: [] });
  });

  it("a path that cannot be written, for a folder or no folder is in the way, is reported and holds up no other file [PLN-5]", async (t) => {
    const writingTo = (quotaFile: string) => ({
      limiter: { mode: "shared", address: "127.0.0.1:8081", quotaFile },
    });
    for (const wrong of [
      { accessLog: "gateway.yaml/access.jsonl" },
      writingTo("gateway.yaml/quotas"),
      writingTo("envoy"),
    ]) {
      const { write, withClients, listeningOn, apply } = await gateway(t);
      write("gateway", { ...listeningOn(8080), ...wrong });
      write("invocation", withClients([]));
      const refused = [["gateway", "refused_by_envoy"]];
      assert.deepEqual(await apply(), { tried: ["old listener, closed"], refused });
    }
  });

  it("what Envoy refused and a full disk does not let be undone is not called out of force [PLN-5]", async (t) => {
    const { disk, write, listeningOn, apply } = await gateway(t);
    disk.isFull = "after a refusal";
    write("gateway", listeningOn(1));
    await assert.rejects(apply(), /what Envoy has in force is not known/);
  });
});
