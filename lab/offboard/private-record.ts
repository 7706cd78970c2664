// The private record of each side, as its owners would fill it in: `offboarding open` begins it, an editor
// completes it, `offboarding open` then opens the run. Invariant: it lies outside every work tree, since the lab's
// own folder is usually inside one, in a folder that only this user can enter.
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseDocument } from "yaml";
import { z } from "zod";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { PRIVATE, writeWhole } from "../../src/runtime/write-file.ts";
import type { Lab } from "../lab.ts";
import type { Seed } from "../seed/seed.ts";
import type { Operator } from "./operator.ts";

export type Kind = "full" | "emergency";

const Opened = z.object({ run: z.object({ run: z.string(), openedAt: z.string() }).nullable() });

const DAY_MS = 86_400_000;

/** Outside version control whatever holds the lab's folder. */
export function privateFolder(labId: string): string {
  return join(tmpdir(), `drawbridge-lab-${labId}`);
}

/** With a lab's data go its private records. */
export function removePrivateRecords(labId: string): void {
  rmSync(privateFolder(labId), { recursive: true, force: true });
}

export interface Opening {
  readonly lab: Lab;
  readonly seed: Seed;
  readonly kind: Kind;
  /** Milliseconds since the Unix epoch. */
  readonly now: number;
  /** The run to join; undefined for who decides. */
  readonly join?: string | undefined;
}

/**
 * Opens a run, or joins one, by way of a private record of its own.
 * @returns the run's ID
 */
export async function openRun(operator: Operator, opening: Opening): Promise<string> {
  const { lab, kind, now } = opening;
  const folder = join(privateFolder(lab.id), operator.organisation);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const file = join(folder, `removal-${now}.yaml`);
  const trigger = kind === "emergency" ? "suspected_compromise" : "contract_end";
  const words = [
    ...["offboarding", "open", operator.counterparty, "--record", file, "--kind", kind],
    ...["--trigger", trigger, ...(opening.join === undefined ? [] : ["--join", opening.join])],
  ];
  await operator.type(...words);
  complete(file, operator, opening);
  const { run } = Opened.parse(await operator.must(...words));
  if (run !== null) return run.run;
  throw new DrawbridgeError(
    "program_failed",
    `the private record of ${operator.organisation} is incomplete`,
    {
      hint: `drawbridge offboarding show --record ${file}`,
    },
  );
}

/** What people write: roles and references, no names. */
function complete(file: string, { counterparty }: Operator, { seed, now }: Opening): void {
  const day = (days: number) => new Date(now + days * DAY_MS).toISOString().slice(0, 10);
  const values: Readonly<Record<string, unknown>> = {
    "partner.legalEntity": `The legal entity of ${counterparty}`,
    "security.incidentOwner": "security-duty",
    "security.containmentAuthority": "head-of-security",
    "technical.owner": "federation-operator",
    "technical.rollbackOwner": "platform-duty",
    "change.reference": "CHG-2041",
    "change.rollback": "CHG-2041/rollback",
    "affected.rooms": seed.rooms.map(({ roomId }) => roomId),
    "maintenance.from": new Date(now).toISOString(),
    "maintenance.until": new Date(now + DAY_MS / 12).toISOString(),
    "maintenance.expectedInterruption": "30s",
    "duties.retention.state": "ended",
    "duties.purge.remoteMedia": "purge",
    "duties.purge.quarantinedMedia": "keep",
    "duties.purge.rooms": [],
    "duties.backups.owner": "backup-duty",
    "duties.backups.expireBy": day(90),
    "attestation.own": "federation-owner",
    "attestation.partner": "federation-owner",
    "readmission.possible": true,
    "readmission.owner": "partner-management",
    "readmission.conditions": ["contract_signed", "fresh_keys"],
  };
  const document = parseDocument(readFileSync(file, "utf8"));
  for (const [path, value] of Object.entries(values)) document.setIn(path.split("."), value);
  writeWhole(file, document.toString({ lineWidth: 0 }), PRIVATE);
}
