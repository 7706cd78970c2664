// The commands of a removal as two operators run them: what they print, how they end, and the record at the end.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { parse, stringify } from "yaml";
import { STAGE_NAMES } from "../../../../src/records/format/removal-stages.ts";
import { makeParties } from "../../../support/offboarding.ts";
import { A, B } from "../../../support/offboarding-planes.ts";
import { ROOT, run, temporaryFolder } from "../../../support/temporary.ts";

const SCRIPTED = join(ROOT, "tests/lab/federation/offboarding/offboarding-cli.ts");

/** What the owners fill in. */
const FILLED: Readonly<Record<string, unknown>> = {
  "partner.legalEntity": "The Other Harbour",
  "revocation.kind": "full",
  "revocation.trigger": "contract_end",
  "security.incidentOwner": "security-2",
  "security.containmentAuthority": "security-1",
  "technical.owner": "operations-4",
  "technical.rollbackOwner": "operations-5",
  "change.reference": "CHG-2026-118",
  "change.rollback": "CHG-2026-118/rollback",
  "affected.rooms": [],
  "maintenance.from": "2026-11-21T22:00:00Z",
  "maintenance.until": "2026-11-21T23:00:00Z",
  "maintenance.expectedInterruption": "30s",
  "duties.retention.state": "ended",
  "duties.purge.remoteMedia": "keep",
  "duties.purge.quarantinedMedia": "keep",
  "duties.purge.rooms": [],
  "duties.purge.waiver": "no_data_kept",
  "duties.backups.owner": "operations-6",
  "duties.backups.expireBy": "2027-02-21",
  "attestation.own": "change-owner",
  "attestation.partner": "change-owner",
  "readmission.possible": false,
  "readmission.conditions": [],
};

describe("offboarding commands", () => {
  it("two operators complete a removal on the command line, and status reports whose turn it is [OFF-2]", async (t) => {
    const directory = temporaryFolder(t);
    await makeParties(directory);
    const transcript: string[] = [];
    const at = async (own: string, ...words: readonly string[]) => {
      const folder = join(directory, own);
      const probes = ["run", "next", "sign", "complete"].includes(words[0] ?? "");
      const more = probes ? ["--probe-config", join(folder, "probe.yaml")] : [];
      const group = words[0] === "reconcile" ? [] : ["offboarding"];
      const all = [...group, ...words, "--config", join(folder, "federation.yaml"), ...more];
      const ended = await run(process.execPath, [
        "--import",
        SCRIPTED,
        join(ROOT, "src/cli/main.ts"),
        ...all,
      ]);
      transcript.push(
        `${own}$ drawbridge ${[...group, ...words].join(" ")}`,
        `${ended.stdout}${ended.stderr}[${ended.code}]`,
        "",
      );
      return ended;
    };
    const done = async (own: string, ...words: readonly string[]) => {
      const ended = await at(own, ...words);
      assert.equal(ended.code, 0, `${words.join(" ")}: ${ended.stdout}${ended.stderr}`);
      return ended.stdout;
    };
    const fill = (file: string) => {
      const record = parse(readFileSync(file, "utf8"));
      for (const [path, value] of Object.entries(FILLED)) {
        const steps = path.split(".");
        const last = steps.pop() ?? "";
        const place = steps.reduce((object, step) => object[step], record);
        place[last] = value;
      }
      writeFileSync(file, stringify(record));
    };
    let id = "";
    for (const own of [A, B]) {
      mkdirSync(join(directory, own, "parts"));
      await at(own, "reconcile", "--once");
      const record = join(directory, own, "private.yaml");
      const open = ["open", own === A ? B : A, "--record", record, ...(own === A ? [] : ["--join", id])];
      assert.equal((await at(own, ...open)).code, 5);
      fill(record);
      id = (await done(own, ...open)).trim();
      assert.match(id, /^[0-9a-f]{32}$/);
    }
    assert.match(await done(A, "plan"), /plane 1 transport\n.*\n {2}RESTARTS: the homeserver/);
    assert.equal((await at(A, "export", join(directory, "nothing.json"))).code, 1);

    const hand = async (from: string, to: string) => {
      const file = join(directory, `from-${from}.json`);
      await done(from, "export", file);
      return done(to, "import", file);
    };
    const outbox = (own: string) => join(directory, `signed-by-${own}.json`);
    const runAt = async (own: string, more: readonly string[] = [], isWaiting = false) => {
      const files = ["--import", outbox(own === A ? B : A), "--export", outbox(own)];
      const { code, stdout, stderr } = await at(own, "run", ...files, ...more);
      assert.equal(code, isWaiting ? 7 : 0, `${stdout}${stderr}`);
      return stdout;
    };
    for (const [index, stage] of STAGE_NAMES.entries()) {
      if (index % 2 === 1) {
        // The same by one command: each side does what it can, and hands its file over.
        const after = STAGE_NAMES[index + 1];
        const before = after === undefined ? [] : ["--before", after];
        if (index === 1) {
          // What is signed cannot be passed on: that is said before the next stage is opened.
          const nowhere = join(directory, A, "federation.yaml", "out.json");
          const { code, stderr } = await at(A, "run", "--export", nowhere);
          assert.equal(code, 2, stderr);
          assert.doesNotMatch(stderr, /shown closed/);
          assert.match(stderr, /^error: cannot write .*out\.json: E[A-Z]+\nhint: /m);
        }
        assert.match(await runAt(A, before, true), /^Waiting for b\.test: countersignature of /);
        assert.equal(JSON.parse(await runAt(B, [...before, "--json"], true)).end, "waiting");
        const { end, status } = JSON.parse(await runAt(A, [...before, "--json"], after === undefined));
        const one = status.steps[index];
        assert.deepEqual([one.own.state, one.other.state], ["countersigned", "countersigned"]);
        assert.equal(end, after === undefined ? "waiting" : "paused");
        if (after === undefined) assert.equal(status.completion.state, "signed");
        else assert.equal(JSON.parse(await runAt(B, [...before, "--json"])).end, "paused");
        continue;
      }
      assert.match(await done(A, "next"), new RegExp(`^${stage}: closed, and shown`));
      await done(A, "sign");
      await done(B, "next");
      await hand(A, B);
      await done(B, "sign");
      await hand(B, A);
      await done(A, "sign");
      await hand(A, B);
      if (index === 2) {
        const status = JSON.parse(await done(A, "status", "--json"));
        const states = status.steps.map(
          ({ own, other }: { own: { state: string }; other: { state: string } }) =>
            `${own.state} ${other.state}`,
        );
        assert.deepEqual(states.slice(1, 4), [
          "countersigned countersigned",
          "countersigned countersigned",
          "pending unknown",
        ]);
        assert.deepEqual(status.next, ["next"]);
        assert.match(await done(B, "status"), /Next: drawbridge offboarding next --config/);
      }
    }
    assert.match(await done(A, "status"), /Waiting for b\.test: completion countersignature, since /);
    assert.match(await runAt(B), /^COMPLETE; the record verifies/m);
    assert.match(await hand(B, A), /COMPLETE; the record verifies/);
    const { recordFile: file } = JSON.parse(await done(B, "status", "--json"));
    const shown = await run(process.execPath, [
      join(ROOT, "src/cli/main.ts"),
      "verify",
      file,
      "--trust",
      join(directory, A, "trust.yaml"),
    ]);
    assert.equal(shown.code, 0, shown.stdout);
    assert.match(shown.stdout, /^VERIFIED: both organisations signed this removal/);
    const { DRAWBRIDGE_TRANSCRIPT: where } = process.env;
    if (where !== undefined) writeFileSync(where, transcript.join("\n"));
  });
});
