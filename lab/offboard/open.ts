// Begins a removal at both organisations: the remover opens a run and gives its ID to the partner, and each side fills
// in a private record of its own.
// Invariants: a removal that was interrupted is continued, never begun a second time; a private record lies outside
// every work tree, in a folder that only this user can enter.
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as z from "zod";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { isRemoved, type Partner } from "../../src/federation/registry/partner.ts";
import { editYaml, type YamlEdit } from "../../src/runtime/edit-yaml.ts";
import { PRIVATE, writeWhole } from "../../src/runtime/write-file.ts";
import { changeRegistry } from "../configuration/control-repository.ts";
import { type Lab, SOURCES } from "../lab.ts";
import type { Operator } from "../observe/operator.ts";
import { COMPLETE_ORGANISATIONS, partnerOf } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import type { Seed } from "../seed/seed-file.ts";
import { partnerEntry } from "../status/federation.ts";
import { RunStatus } from "./workflow.ts";

export type Kind = "full" | "emergency";

/** What becomes of shared rooms at a removal. */
export const ROOM_CHOICES = ["keep", "replace"] as const;
export type RoomChoice = (typeof ROOM_CHOICES)[number];

/** `keep`: read-only, and rooms that cannot be closed are listed; `replace`: the default of an entry. */
const ROOM_ENTRIES: Readonly<Record<RoomChoice, Readonly<Record<string, string>>>> = {
  keep: { whenRemoved: "read_only", whenUnclosable: "list" },
  replace: { whenRemoved: "replace", whenUnclosable: "replace" },
};

export interface OpenedRun {
  readonly run: string;
  /** When an interrupted run was opened, in milliseconds since the Unix epoch; null for a new one. */
  readonly openedBefore: number | null;
}

/**
 * Opens the run at both, or finds the one that is open.
 * @param rooms what both registries are made to say of shared rooms; undefined for what they say already
 * @throws DrawbridgeError `usage` when the partner is removed already, or a removal of another kind or with another
 *   choice of rooms is open
 */
export async function openBoth(
  scope: {
    readonly lab: Lab;
    readonly seed: Seed;
    readonly kind: Kind;
    readonly rooms?: RoomChoice | undefined;
  },
  remover: Operator,
  partner: Operator,
  progress: Progress,
): Promise<OpenedRun> {
  const { lab, kind, rooms } = scope;
  const now = SOURCES.clock.now();
  const open = await openRunOf(remover);
  if (open === undefined) {
    if (isRemoved(await partnerEntry(lab, remover.organisation))) {
      throw new DrawbridgeError("usage", `${partner.organisation} is removed already`, {
        hint: "Readmit it first: ./task fed:readmit.",
      });
    }
    if (rooms !== undefined) {
      await declareRooms(lab, rooms);
      progress.done(`both registries say what becomes of shared rooms: ${rooms}`);
    }
  } else {
    if (open.kind !== kind) {
      throw new DrawbridgeError("usage", `a removal is open, and is ${open.kind}`, {
        hint: "Continue that one: run the task with the same options as before.",
      });
    }
    const entries = COMPLETE_ORGANISATIONS.map((organisation) => partnerEntry(lab, organisation));
    if (rooms !== undefined) requireDeclared(await Promise.all(entries), rooms);
  }
  const run = open?.run ?? (await openRun(remover, { ...scope, now }));
  if ((await openRunOf(partner))?.run !== run) await openRun(partner, { ...scope, now, join: run });
  if (open !== undefined) progress.note(`A removal was interrupted; continuing run ${run}.`);
  else progress.done(`run ${run} is open at both, each with a private record of its own`);
  return { run, openedBefore: open === undefined ? null : Date.parse(open.openedAt) };
}

/**
 * Refuses a choice of rooms that an open removal was not begun with: the rooms that it has closed cannot be changed.
 * @throws DrawbridgeError `usage` when an entry declares something else
 */
export function requireDeclared(entries: readonly Pick<Partner, "rooms">[], rooms: RoomChoice): void {
  const isDeclared = (entry: Pick<Partner, "rooms">) =>
    Object.entries(ROOM_ENTRIES[rooms]).every(
      ([key, value]) => new Map(Object.entries(entry.rooms)).get(key) === value,
    );
  if (entries.every(isDeclared)) return;
  throw new DrawbridgeError("usage", `a removal is open that was not begun with --rooms ${rooms}`, {
    hint: "Continue that one: run the task again without --rooms.",
  });
}

async function openRunOf(operator: Operator): Promise<RunStatus | undefined> {
  const { output } = await operator.run(["offboarding", "status", "--all"]);
  return z
    .array(RunStatus)
    .parse(output)
    .find(({ ended }) => ended === null);
}

const Opened = z.object({ run: z.object({ run: z.string(), openedAt: z.string() }).nullable() });

const DAY_MS = 86_400_000;

/** Outside version control, wherever the lab's folder lies. */
function privateFolder(labId: string): string {
  return join(tmpdir(), `drawbridge-lab-${labId}`);
}

/** Removes the private records together with a lab's data. */
export function removePrivateRecords(labId: string): void {
  rmSync(privateFolder(labId), { recursive: true, force: true });
}

export interface Opening {
  readonly lab: Lab;
  readonly seed: Seed;
  readonly kind: Kind;
  /** Milliseconds since the Unix epoch. */
  readonly now: number;
  /** The run to join; undefined for the remover. */
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
  await operator.run(words);
  complete(file, operator, opening);
  const { run } = Opened.parse(await operator.mustRun(...words));
  if (run !== null) return run.run;
  throw new DrawbridgeError(
    "program_failed",
    `the private record of ${operator.organisation} is incomplete`,
    { hint: `Complete ${file}: drawbridge offboarding open names what it lacks.` },
  );
}

/** Fills in what people would write: roles and references, no names. */
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
  const edits = Object.entries(values).map(([path, value]) => ({ path: path.split("."), value }));
  writeWhole(file, editYaml(readFileSync(file, "utf8"), edits), PRIVATE);
}

/** Commits the choice of rooms to both registries; the rest of an entry is left as it is. */
export async function declareRooms(lab: Lab, rooms: RoomChoice): Promise<void> {
  for (const organisation of COMPLETE_ORGANISATIONS) {
    const partner = partnerOf(organisation);
    const file = `registry/partners/${partner}.yaml`;
    const edits = Object.entries(ROOM_ENTRIES[rooms]).map(
      ([key, value]): YamlEdit => ({ path: ["rooms", key], value }),
    );
    const message = `At a removal of ${partner}: ${rooms} shared rooms`;
    await changeRegistry(
      lab,
      organisation,
      message,
      (found) => new Map([...found, [file, editYaml(found.get(file) ?? "", edits)]]),
    );
  }
}
