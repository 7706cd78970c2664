// What a lab's status says of removals and re-admissions that are under way, from the repository and the state folder.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { federationStatus } from "../../../lab/status/federation.ts";
import { systemRandom } from "../../../src/domain/clock.ts";
import { changeRun, writeRun } from "../../../src/federation/offboarding/run/run-file.ts";
import { openStateFolder } from "../../../src/federation/state/folder.ts";
import { commitOnTop, controlRepository, PILOTS } from "../../support/control-repository.ts";
import { NO_SCOPE } from "../../support/removal.ts";
import { registryFiles } from "../../support/sample-files.ts";
import { temporaryFolder } from "../../support/temporary.ts";
import { paperLab } from "../../unit/lab/paper-lab.ts";

const AT = "2026-01-01T00:00:00.000Z";

describe("a lab's status of federation control", () => {
  it("names a removal and a re-admission that have not ended [LAB-1]", async (t) => {
    const lab = paperLab(temporaryFolder(t));
    const { controlRepository: path, federationState } = lab.paths.organisation("org-a");
    const repository = await controlRepository(path);
    const [azp = "", serverName = ""] = ["azp", "serverName"].map(
      (name) => new RegExp(`(?<=^${name}: )\\S+`, "m").exec(registryFiles().get(PILOTS) ?? "")?.[0],
    );
    const record = (act: string) => ({
      ...{ schema: "svc.federation.readmission.v1", act, readmission: "2".repeat(32), azp, approval: "B-1" },
      ...{
        server_name: serverName,
        new_identities: `sha256:${"0".repeat(64)}`,
        git_revision: "0".repeat(40),
      },
      ...{ timestamp: AT, rooms: null, rooms_replaced: 0, planes: [] },
      retired: { card_keys: [], clients: [], server_keys: [] },
    });
    const commit = (act: string) =>
      commitOnTop(repository, new Map([[`records/readmission/${act}.json`, JSON.stringify(record(act))]]));
    const unfinished = async () => (await federationStatus(lab, "org-a")).unfinished;
    assert.deepEqual(await unfinished(), []);
    await commit("opened");
    const run = writeRun(openStateFolder(federationState, systemRandom), {
      ...{ version: 1, run: "1".repeat(32), kind: "full", trigger: "contract_end", opened_at: AT },
      ...{ self: "a.test", remover: "a.test", partner: "b.test", private_record_file: "/nowhere" },
      ...{ contained_at: null, waivers: [], ended: null },
      baseline: { revision: "0".repeat(40), scope: NO_SCOPE },
    });
    assert.deepEqual(await unfinished(), [
      { what: "removal", serverName: "b.test", since: AT },
      { what: "re-admission", serverName, since: AT },
    ]);
    await commit("completed");
    changeRun(run, { ended: { how: "completed", reason: null, at: AT } });
    assert.deepEqual(await unfinished(), []);
  });
});
