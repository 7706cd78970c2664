// check:fed-break-glass: a partner of a sample organisation is contained and restored in a repository of its
// own, with planes of plain files: the border drops it and takes it back, the records and the evidence pack
// are content-free by schema, and so is a report of abuse. Needs no server.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../src/domain/clock.ts";
import { readReport } from "../src/federation/abuse/report.ts";
import { type ActResult, applyPlanes, performAct } from "../src/federation/containment/contain-or-restore.ts";
import { federationStatus } from "../src/federation/containment/federation-status.ts";
import { assemblePack, packProblems } from "../src/federation/evidence/pack.ts";
import { CONTAINMENT_ORDER } from "../src/federation/plane-order.ts";
import { runPass } from "../src/federation/reconcile/pass.ts";
import { ContainmentRecord } from "../src/federation/registry/committed-records.ts";
import { PolicyFile } from "../src/rendered-files/border-policy.ts";
import {
  changedPaths,
  controlConfig,
  controlRepository,
  openControl,
} from "../tests/support/control-repository.ts";

const PARTNER = "lighthouse";

type Report = (what: string, holds: boolean) => void;

async function breakGlass(directory: string, report: Report): Promise<void> {
  const repository = await controlRepository(join(directory, "control.git"));
  const opened = await openControl(directory, repository, systemClock);
  const { federation, parts, folder } = opened;
  const admitted = () => {
    const text = readFileSync(join(folder, "border/policy.json"), "utf8");
    return new Set(PolicyFile.parse(JSON.parse(text)).allowed_servers);
  };
  const transport = () => readFileSync(join(folder, "transport/homeserver.yaml"), "utf8");
  const applySteps = async (result: ActResult) => {
    parts.applied.length = 0;
    return applyPlanes(federation, result.act, result.partner);
  };
  const records = async () => {
    const files = await repository.read(await repository.requireHead(), ["records"]);
    return [...files.values()].map((text) => ContainmentRecord.safeParse(JSON.parse(text)));
  };

  await runPass(federation);
  const [before, whitelist] = [admitted(), transport()];
  const first = await repository.requireHead();
  const begun = new Date(systemClock.now()).toISOString();
  const contained = await performAct(federation, "contain", PARTNER);
  const { serverName } = contained.partner.partner;
  report("the border admits the partner before", before.has(serverName));
  const closed = await applySteps(contained);
  report(
    "containment closes planes 5, 4, 2 and 3, in this order",
    closed.every(({ done }) => done),
  );
  report(
    "and then looks at the rooms again",
    parts.applied.join() === [...CONTAINMENT_ORDER, "rooms"].join(),
  );
  report(
    "the border drops the partner, and nobody else",
    !admitted().has(serverName) && admitted().size === before.size - 1,
  );
  report("the transport is as it was", transport() === whitelist);
  const status = await federationStatus(federation);
  report(
    "the status lists it",
    status.contained.some(({ name }) => name === PARTNER),
  );
  const again = await performAct(federation, "contain", PARTNER);
  report("containing it again changes nothing", again.record === undefined && (await records()).length === 1);
  for (const name of ["nobody.example", contained.partner.name.toUpperCase()]) {
    const refused = await performAct(federation, "contain", name).then(
      () => false,
      () => true,
    );
    report(`${name} is no partner`, refused);
  }

  const pass = await runPass(federation);
  const partner = pass.desired?.registry.partners.find(({ name }) => name === PARTNER);
  if (pass.desired !== undefined && partner !== undefined) {
    const pack = await assemblePack({
      config: controlConfig(directory, { path: repository.path }),
      current: { desired: pass.desired, repository },
      partner,
      window: { since: begun, until: new Date(systemClock.now() + 1).toISOString() },
      inside: closed.flatMap(({ evidence }) => evidence),
      outside: [],
      clock: systemClock,
    });
    report("the evidence pack is intact and within its schema", packProblems(pack).length === 0);
    report(
      "it holds the one record and says the partner is contained",
      pack.containment_records.length === 1 && pack.partner.contained,
    );
    const spoiled = { ...pack, message: "what somebody wrote" };
    report("a pack that holds anything else is refused", packProblems(spoiled).length > 0);
  }
  checkAbuseReport(serverName, report);

  const restored = await performAct(federation, "restore", PARTNER);
  report(
    "restoring opens planes 3, 2, 4 and 5",
    (await applySteps(restored)).every(({ done }) => done),
  );
  report("in this order", parts.applied.join() === [...CONTAINMENT_ORDER].reverse().join());
  report("the border takes the partner back", [...admitted()].join() === [...before].join());
  const changed = changedPaths(repository, first, await repository.requireHead());
  const rendered = changed.filter((path) => /^(rendered|kubernetes)\//.test(path));
  report("what is rendered is what it was before", rendered.length === 0);
  const made = await records();
  report("two records, each within its schema", made.length === 2 && made.every(({ success }) => success));
}

function checkAbuseReport(serverName: string, report: Report): void {
  const sample = {
    schema: "svc.federation.abuse-report.v1",
    reporter: { server_name: "harbour.example" },
    subject: { server_name: serverName },
    category: "spam",
    severity: "high",
    requested_action: "contain",
    evidence_refs: [`sha256:${"0".repeat(64)}`],
  };
  const read = (value: unknown) => readReport(Buffer.from(JSON.stringify(value)));
  report("a report of abuse that refers is taken", read(sample).problems === undefined);
  const quoting = { ...sample, evidence_refs: ["what somebody wrote"] };
  report("one that quotes is refused", read(quoting).problems !== undefined);
}

export async function checkBreakGlass(): Promise<number> {
  const directory = mkdtempSync(join(tmpdir(), "drawbridge-break-glass-"));
  let failures = 0;
  try {
    await breakGlass(directory, (what, holds) => {
      if (!holds) failures++;
      process.stdout.write(`${holds ? "ok     " : "FAILED "} ${what}\n`);
    });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  return failures === 0 ? 0 : 1;
}
