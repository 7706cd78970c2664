// An abuse report on its way into a real repository.
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import { type AbuseReport, fileReport, wasRestoredSince } from "../../../../src/federation/abuse/report.ts";
import { runPass } from "../../../../src/federation/reconcile/pass.ts";
import {
  AT,
  allowedSigners,
  commitOnTop,
  commitRegistry,
  controlRepository,
  openControl,
  PILOTS,
  signingKey,
} from "../../../support/control-repository.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { registryFiles } from "../../../support/sample-files.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

const REPORT: AbuseReport = {
  schema: "svc.federation.abuse-report.v1",
  reporter: { server_name: "reporter.example" },
  subject: { server_name: "matrix.lighthouse.example:8448" },
  category: "spam",
  severity: "low",
  requested_action: "review",
  evidence_refs: ["kid:org-b-2026"],
};
const DIGEST = `sha256:${"a".repeat(64)}`;

async function control(t: TestContext, settings = {}) {
  const directory = temporaryFolder(t);
  const repository = await controlRepository(join(directory, "control"));
  const opened = await openControl(directory, repository, new ManualClock(AT), settings);
  return { ...opened, repository, file: () => fileReport(REPORT, DIGEST, opened.federation) };
}

describe("fileReport", () => {
  it("fileReport commits a report once when it is filed twice [ABU-1]", async (t) => {
    const { file, repository } = await control(t);
    assert.deepEqual([(await file()).isNew, (await file()).isNew], [true, false]);
    assert.equal((await repository.list(await repository.requireHead(), ["records/abuse"])).length, 1);
  });

  it("a report does not count once its subject was restored or re-admitted since [ABU-1]", async (t) => {
    const { repository } = await control(t);
    const { server_name } = REPORT.subject;
    const common = { server_name, azp: "lighthouse", git_revision: "0".repeat(40) };
    const opened = {
      ...{ schema: "svc.federation.readmission.v1", act: "opened", readmission: "1".repeat(32), ...common },
      ...{ approval: "CHG-1", timestamp: "2026-05-04T10:00:00.000Z", rooms: null, rooms_replaced: 0 },
      ...{ planes: [], retired: { card_keys: [], clients: [], server_keys: [] } },
      new_identities: `sha256:${"0".repeat(64)}`,
    };
    const restored = {
      ...{ schema: "svc.federation.containment.v1", act: "restore", classification: "internal", ...common },
      ...{ timestamp: opened.timestamp, planes: ["gateway", "card", "rooms", "border"] },
    };
    // By a clock that is some minutes ahead.
    const contained = { ...restored, act: "contain", timestamp: "2026-05-04T10:04:00.000Z" };
    await commitOnTop(repository, new Map([["records/containment/b.json", JSON.stringify(contained)]]));
    for (const [path, record] of [
      ["records/containment/a.json", restored],
      ["records/readmission/a.json", opened],
    ] as const) {
      await commitOnTop(repository, new Map([[path, JSON.stringify(record)]]));
      const head = await repository.requireHead();
      const isRestoredSince = (at: string) => wasRestoredSince(REPORT, DIGEST, at, repository, head);
      assert.equal(await isRestoredSince("2026-05-04T09:59:59.000Z"), true, path);
      assert.equal(await isRestoredSince("2026-05-04T10:00:01.000Z"), false, path);
      await commitOnTop(repository, new Map([[path, "{}"]]));
    }
  });

  it("fileReport refuses to build on a head that may not be taken up [ABU-1]", async (t) => {
    const keys = temporaryFolder(t);
    const mine = signingKey(keys, "mine");
    const allowedSignersFile = allowedSigners(join(keys, "allowed"), mine.allowed);
    const settings = { allowedSignersFile, signingKeyFile: mine.file };
    const { file, repository, federation } = await control(t, settings);
    await commitOnTop(repository, new Map([["README.md", "signed"]]), { signingKeyFile: mine.file });
    await runPass(federation);
    const evil = (registryFiles().get(PILOTS) ?? "").replaceAll("pilot", "evil");
    // The report's own file among it, as somebody leaves it who wants it to be taken for filed.
    const filed = `records/abuse/matrix.lighthouse.example_8448-${"a".repeat(32)}.json`;
    await commitRegistry(
      repository,
      new Map([
        ["registry/partners/evil.yaml", evil],
        [filed, "{}"],
      ]),
    );
    const unsigned = await repository.requireHead();
    await assert.rejects(file(), { code: "head_refused", message: /nothing was filed/ });
    assert.equal(await repository.head(), unsigned);
    const { refusal, desired } = await runPass(federation);
    assert.equal(refusal?.reason, "signature_not_allowed");
    assert.ok(desired?.registry.partners.every(({ name }) => name !== "evil"));
  });

  it("fileReport refuses a commit that the reconciler would refuse, with a hint [ABU-1]", async (t) => {
    const keys = temporaryFolder(t);
    const mine = signingKey(keys, "mine");
    const allowedSignersFile = allowedSigners(join(keys, "allowed"), mine.allowed);
    const { file, repository, federation } = await control(t, { allowedSignersFile });
    await commitOnTop(repository, new Map([["README.md", "signed"]]), { signingKeyFile: mine.file });
    await runPass(federation);
    const head = await repository.head();
    await assert.rejects(file(), { code: "config_invalid", message: /signingKeyFile is not set/ });
    rmSync(allowedSignersFile);
    await assert.rejects(file(), (error: unknown) => {
      assert.ok(error instanceof DrawbridgeError);
      assert.equal(error.code, "head_refused");
      assert.match(error.message, /cannot be read/);
      assert.match(error.hint ?? "", /repository\.allowedSignersFile/);
      return true;
    });
    assert.equal(await repository.head(), head);
  });
});
