// A removal begins at its remover, who gives its ID to the partner; each has a private record of its own.
// Invariant: a removal that was cut off is gone on with, never begun a second time.
import { z } from "zod";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { Partner } from "../../src/federation/registry/partner.ts";
import { SOURCES } from "../break-glass/scene.ts";
import type { Lab } from "../lab.ts";
import type { Progress } from "../progress.ts";
import type { Seed } from "../seed/seed.ts";
import { entryOf, isRemoved } from "./entry.ts";
import { declareRooms, isDeclared, type KeptOrReplaced } from "./kept-rooms.ts";
import { type Operator, RunStatus } from "./operator.ts";
import { type Kind, openRun } from "./private-record.ts";

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
