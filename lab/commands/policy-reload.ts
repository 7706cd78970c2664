// fed:policy-reload: has the border modules take their policy files at once, and proves that they have.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { renderJson } from "../../src/cli/lib/command.ts";
import { systemClock } from "../../src/domain/clock.ts";
import { loadFederationConfig } from "../../src/federation/config.ts";
import { type BorderStatus, borderStatus } from "../../src/federation/planes/border/runtime.ts";
import { PolicyFile, policyDigest } from "../../src/rendered-files/border-policy.ts";
import type { Lab } from "../lab.ts";
import { programsOf } from "../observe/restarts.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../organisations.ts";
import { completeOrganisation, namedLab, parseOptions } from "./options.ts";

const USAGE = `
Usage: ./task fed:policy-reload [ORG] [--json] [--name LAB]

Has the homeserver of ORG (org-a or org-b; both when absent) take its policy file at once, and holds the digest
that the border module reports against that of the file. The homeserver is not restarted. A file that is edited
by hand is put right by the reconciler within seconds; what is to stay is committed to the registry.

  0  the policy in the file is in force
  1  it is not: the file is refused, or the module has another one; the alarm says why
`;

const TIMEOUT_MS = 10_000;
const POLL_MS = 50;

interface Reloaded {
  readonly organisation: CompleteOrganisation;
  readonly policyFile: string;
  /** Null when the file is no valid policy: then the module keeps the last valid one, or denies everybody. */
  readonly fileDigest: string | null;
  readonly border: BorderStatus;
  readonly tookMs: number;
  readonly homeserver: { readonly pidBefore: number | null; readonly pid: number | null };
  readonly holds: boolean;
}

export async function policyReload(args: readonly string[]): Promise<number> {
  const options = parseOptions(args, USAGE, { json: { type: "boolean" } }, 1);
  if (options === undefined) return 0;
  const lab = namedLab(options);
  const [named] = options.positionals;
  const organisations =
    named === undefined ? COMPLETE_ORGANISATIONS : [completeOrganisation(lab, named, USAGE)];
  const reloaded = await Promise.all(organisations.map((organisation) => reload(lab, organisation)));
  process.stdout.write(options.flag("json") ? renderJson(reloaded) : textOf(reloaded));
  return reloaded.every(({ holds }) => holds) ? 0 : 1;
}

async function reload(lab: Lab, organisation: CompleteOrganisation): Promise<Reloaded> {
  const config = loadFederationConfig(lab.paths.organisation(organisation).federationConfig);
  const policyFile = resolve(config.directory, config.border.policyFile);
  const module = borderStatus(config);
  const pidOf = async () => (await programsOf(lab, organisation))["homeserver"] ?? null;
  const [pidBefore, before] = [await pidOf(), await module.status()];
  const startedAt = systemClock.now();
  // A status request makes the module read its file.
  let fileDigest = digestOf(policyFile);
  let border = await module.status();
  for (const deadline = startedAt + TIMEOUT_MS; !isInForce(border, fileDigest); ) {
    if (systemClock.now() > deadline || fileDigest === null) break;
    await systemClock.sleep(POLL_MS);
    fileDigest = digestOf(policyFile);
    border = await module.status();
  }
  const tookMs = systemClock.now() - startedAt;
  const pid = await pidOf();
  const isSameProcess = pid !== null && pid === pidBefore && border.started_at === before.started_at;
  return {
    ...{ organisation, policyFile, fileDigest, border, tookMs },
    homeserver: { pidBefore, pid },
    holds: isInForce(border, fileDigest) && isSameProcess,
  };
}

function isInForce(border: BorderStatus, digest: string | null): boolean {
  return border.state === "in_force" && border.policy_digest === digest;
}

function digestOf(file: string): string | null {
  try {
    const parsed = PolicyFile.safeParse(JSON.parse(readFileSync(file, "utf8")));
    return parsed.success ? policyDigest(parsed.data) : null;
  } catch {
    return null;
  }
}

function textOf(reloaded: readonly Reloaded[]): string {
  const paragraphs = reloaded.map(
    ({ organisation, policyFile, fileDigest, border, tookMs, homeserver, holds }) => {
      const alarm = border.alarm === null ? "" : `, alarm ${border.alarm}`;
      const was = homeserver.pid === homeserver.pidBefore ? "the same" : `was ${homeserver.pidBefore}`;
      return [
        holds
          ? `${organisation}: the policy in the file is in force, after ${tookMs} ms`
          : `${organisation}: the policy in the file is NOT in force`,
        `  file        ${policyFile}`,
        `  its digest  ${fileDigest ?? "no valid policy"}`,
        `  in force    ${border.policy_digest ?? "none"}`,
        `  module      ${border.state}${alarm}, ${border.servers} servers, loaded at ${border.loaded_at}`,
        `  homeserver  process ${homeserver.pid ?? "none"}, ${was}, since ${border.started_at}`,
      ].join("\n");
    },
  );
  return `${paragraphs.join("\n\n")}\n`;
}
