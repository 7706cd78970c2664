// A removal begins at its remover, who gives its ID to the partner; each has a private record of its own.
// Invariant: a removal that was cut off is gone on with, never begun a second time.

import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseDocument } from "yaml";
import { z } from "zod";
import { systemClock } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { editFile, type FileEdit } from "../../src/federation/change/edit-file.ts";
import type { Partner } from "../../src/federation/registry/partner.ts";
import { PRIVATE, writeWhole } from "../../src/runtime/write-file.ts";
import { SOURCES } from "../break-glass/contain.ts";
import { changeRegistry } from "../configuration/control-repository.ts";
import type { Lab } from "../lab.ts";
import { type Operator, RunStatus } from "../observe/operator.ts";
import { COMPLETE_ORGANISATIONS, partnerOf } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import type { Seed } from "../seed/seed.ts";
import { entryOf, isRemoved } from "../status/closed-partners.ts";

export interface OpenedRun {
  readonly run: string;
  /** When one that was cut off was opened, in milliseconds since the Unix epoch; null for a new one. */
  readonly cutOffSince: number | null;
}

/**
 * Opens the run at both, or finds the one that is open.
 * @throws DrawbridgeError `usage` when the partner is removed already, or another kind of removal is open, or one
 *   in which something else becomes of rooms
 */
export async function openBoth(
  {
    lab,
    seed,
    kind,
    rooms,
  }: {
    readonly lab: Lab;
    readonly seed: Seed;
    readonly kind: Kind;
    readonly rooms?: KeptOrReplaced | undefined;
  },
  remover: Operator,
  partner: Operator,
  progress: Progress,
): Promise<OpenedRun> {
  const now = SOURCES.clock.now();
  const open = await openRunOf(remover);
  if (open !== undefined && open.kind !== kind) {
    throw new DrawbridgeError("usage", `a removal is open, and is ${open.kind}`, {
      hint: "Go on with that one: run the task with the same options as before.",
    });
  }
  if (open !== undefined && rooms !== undefined) {
    const entries = await Promise.all(
      [remover, partner].map(({ organisation }) => entryOf(lab, organisation)),
    );
    requireDeclared(entries, rooms);
  }
  if (open === undefined && isRemoved(await entryOf(lab, remover.organisation))) {
    throw new DrawbridgeError("usage", `${partner.organisation} is removed already`, {
      hint: "Take it back first: ./task fed:readmit.",
    });
  }
  if (open === undefined && rooms !== undefined) {
    await declareRooms(lab, rooms);
    progress.done(`both registries say what becomes of shared rooms: ${rooms}`);
  }
  const run = open?.run ?? (await openRun(remover, { lab, seed, kind, now }));
  if ((await openRunOf(partner))?.run !== run) await openRun(partner, { lab, seed, kind, now, join: run });
  if (open !== undefined) progress.note(`A removal was cut off; going on with it: run ${run}.`);
  else progress.done(`run ${run} is open at both, each with a private record of its own`);
  return { run, cutOffSince: open === undefined ? null : Date.parse(open.openedAt) };
}

/**
 * What becomes of rooms is declared before a removal begins; what it has closed meanwhile cannot be made otherwise.
 * @throws DrawbridgeError `usage` when one of them declares something else
 */
export function requireDeclared(entries: readonly Pick<Partner, "rooms">[], rooms: KeptOrReplaced): void {
  if (entries.every((entry) => isDeclared(entry, rooms))) return;
  throw new DrawbridgeError("usage", `a removal is open that was not begun with --rooms ${rooms}`, {
    hint: "Go on with that one: run the task again without --rooms.",
  });
}

async function openRunOf(operator: Operator): Promise<RunStatus | undefined> {
  const { said } = await operator.type("offboarding", "status", "--all");
  return z
    .array(RunStatus)
    .parse(said)
    .find(({ ended }) => ended === null);
}

// The private record of each side, as its owners would fill it in: `offboarding open` begins it, an editor
// completes it, `offboarding open` then opens the run. Invariant: it lies outside every work tree, since the lab's
// own folder is usually inside one, in a folder that only this user can enter.

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

// What both organisations' registries say becomes of shared rooms at a removal, as their operators would have
// agreed and written it before. Invariants: both sides say the same: a room that one of them leaves for good is
// blocked at its server, and opened again by nobody; the rest of an entry is left as it stands.

export const KEPT_OR_REPLACED = ["keep", "replace"] as const;
export type KeptOrReplaced = (typeof KEPT_OR_REPLACED)[number];

/** `keep`: read-only, and what cannot be closed is listed; `replace`: what an entry says that says nothing. */
const ROOMS: Readonly<Record<KeptOrReplaced, Readonly<Record<string, string>>>> = {
  keep: { whenRemoved: "read_only", whenUnclosable: "list" },
  replace: { whenRemoved: "replace", whenUnclosable: "replace" },
};

/** Whether an entry says so already. */
export function isDeclared(entry: Pick<Partner, "rooms">, rooms: KeptOrReplaced): boolean {
  return Object.entries(ROOMS[rooms]).every(
    ([key, value]) => new Map(Object.entries(entry.rooms)).get(key) === value,
  );
}

/** Commits it at both; nothing where it stands there already. */
export async function declareRooms(lab: Lab, rooms: KeptOrReplaced): Promise<void> {
  for (const organisation of COMPLETE_ORGANISATIONS) {
    const partner = partnerOf(organisation);
    const file = `registry/partners/${partner}.yaml`;
    const edits = Object.entries(ROOMS[rooms]).map(
      ([key, value]): FileEdit => ({ path: ["rooms", key], value }),
    );
    await changeRegistry(
      lab,
      organisation,
      `At a removal of ${partner}: ${rooms} shared rooms`,
      systemClock,
      (found) => new Map([...found, [file, editFile(found.get(file) ?? "", edits)]]),
    );
  }
}
