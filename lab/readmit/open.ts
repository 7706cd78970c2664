// Opens a re-admission at both organisations, with new identities.
// Invariant: an interrupted re-admission is continued; the identities for it are made once.
import * as z from "zod";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { isRemoved } from "../../src/federation/registry/partner.ts";
import type { Lab } from "../lab.ts";
import type { Operator } from "../observe/operator.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import { partnerEntry } from "../status/federation.ts";
import { type NewCardKey, rotateCardKey, writeNewIdentities } from "./identities.ts";

/** The part of `drawbridge readmission status` that the lab reads. */
export const ReadmissionStatus = z.object({
  approval: z.string(),
  done: z.boolean(),
  /** Null before plane 2. */
  touched: z.array(z.object({ room: z.string(), state: z.string() })).nullable(),
  steps: z.array(z.object({ plane: z.string(), provedAt: z.string().nullable() })),
  completedAt: z.string().nullable(),
});
export type Readmission = z.output<typeof ReadmissionStatus>;

export interface OpenedReadmission {
  readonly gate: string;
  /** When the later of the two sides was complete, by its record; null while one is not. */
  readonly completeSince: string | null;
}

/** The later of both completions; null while a side is not complete, or is removed again since. */
export function completeSinceOf(
  sides: readonly { readonly last: Readmission | undefined; readonly isRemoved: boolean }[],
): string | null {
  const times = sides.map(({ last, isRemoved: isClosed }) =>
    last?.done === true && !isClosed ? last.completedAt : null,
  );
  const known = times.filter((at) => at !== null);
  return known.length < times.length ? null : (known.sort().at(-1) ?? null);
}

/**
 * Opens the re-admission at both, or finds it open, or done.
 * @throws DrawbridgeError `usage` when neither is removed from the other
 */
export async function openBoth(
  lab: Lab,
  operators: readonly Operator[],
  progress: Progress,
): Promise<OpenedReadmission> {
  const sides = await Promise.all(
    operators.map(async (operator) => {
      const entry = await partnerEntry(lab, operator.organisation);
      const last = await lastOf(operator);
      const isOpen = last !== undefined && !last.done;
      // Each re-admission retires a client; the first partnership had one without a number.
      const generation = entry.retired.clients.length + (isRemoved(entry) && !isOpen ? 2 : 1);
      return { operator, last, isOpen, isRemoved: isRemoved(entry), generation };
    }),
  );
  const known = sides.find(
    ({ last, isOpen, isRemoved: closed }) => last !== undefined && (isOpen || !closed),
  );
  if (known === undefined && !sides.every(({ isRemoved: closed }) => closed)) {
    throw new DrawbridgeError("usage", "neither organisation is removed from the other", {
      hint: "Remove one first: ./task fed:offboard.",
    });
  }
  const generation = Math.max(...sides.map((side) => side.generation));
  const gate = known?.last?.approval ?? `CONTRACT-77-${generation}`;
  const waiting = sides.filter((side) => side.isRemoved && !side.isOpen);
  const completeSince = completeSinceOf(sides);
  if (completeSince !== null) return { gate, completeSince };
  if (known !== undefined) progress.note("A re-admission is open already; continuing it.");
  if (waiting.length === 0) return { gate, completeSince };
  progress.doing("new keys and clients");
  const keys = Object.fromEntries(
    await Promise.all(
      COMPLETE_ORGANISATIONS.map(async (name) => [name, await rotateCardKey(lab, name, generation)] as const),
    ),
  ) as Record<CompleteOrganisation, NewCardKey>;
  progress.done(`each agent signs its card with a new key, and each bridge has a new client (${generation})`);
  for (const { operator } of waiting) {
    const { organisation, counterparty } = operator;
    const identities = await writeNewIdentities(lab, organisation, generation, keys);
    await operator.mustRun(
      "readmission",
      "open",
      counterparty,
      "--approval",
      gate,
      "--new-identities",
      identities,
    );
    progress.done(`${organisation} retires the identities of ${counterparty} and pins the new ones`);
  }
  return { gate, completeSince };
}

/** This side's last re-admission; undefined where there was none. */
async function lastOf(operator: Operator): Promise<Readmission | undefined> {
  try {
    const { output } = await operator.run(["readmission", "status", operator.counterparty]);
    return ReadmissionStatus.parse(output);
  } catch (error) {
    if (error instanceof DrawbridgeError) return undefined;
    throw error;
  }
}
