// Restores a contained partner: its people accept the invitations that come with it, and one of them asks.
import { type AskResult, ask } from "../ask/ask.ts";
import type { Observed } from "../observe/attempt-watch.ts";
import { comparePrograms, type ProgramsAfter, programsOf } from "../observe/restarts.ts";
import type { Progress } from "../progress.ts";
import { acceptInvitations, type Invitation } from "../seed/memberships.ts";
import { seedRooms } from "../seed/rooms.ts";
import { roomOf } from "../seed/seed-file.ts";
import { waitUntilReconciled } from "../status/federation.ts";
import { type Parties, runAboutPartner, whileTrying } from "./contain.ts";

const SETTLE_MS = 20_000;

export interface Restored {
  readonly act: "restore";
  readonly observed: readonly Observed[];
  readonly decidedAt: number;
  readonly acted: unknown;
  readonly accepted: readonly Invitation[];
  readonly answered: AskResult;
  readonly programs: ProgramsAfter;
  /** What does not hold: a closed plane, a restart, a question without an answer. */
  readonly problems: readonly string[];
}

/** @throws DrawbridgeError `agent_unavailable` when the question has no outcome */
export async function restore(parties: Parties, progress: Progress): Promise<Restored> {
  const { lab, seed, org, partner } = parties;
  const before = await programsOf(lab, org);
  // A room that the partner had made was replaced and does not come back: its replacement does.
  const isGone = (roomOf(seed, org)?.replacedBy ?? org) === partner;
  const isIn = ({ plane, lastPass, lastRefusal }: Observed) =>
    (isGone && plane === "rooms") ||
    (lastPass !== null && (lastRefusal === null || lastPass.afterMs > lastRefusal.afterMs));
  const { observed, acted, decidedAt } = await whileTrying(parties, false, async (watch) => {
    const decided = watch.countFromNow();
    const result = await runAboutPartner(parties, "restore", "--apply");
    await watch.until(isIn, SETTLE_MS);
    return { observed: await watch.stop(), acted: result, decidedAt: decided };
  });
  progress.done(`${org} has restored ${partner}`);
  await waitUntilReconciled(lab, progress);
  const accepted = await acceptInvitations(lab, seed, partner, org);
  progress.done(`people of ${partner} have accepted ${accepted.length} invitations of ${org}`);
  // Rooms that containment has closed for good, such as one of the partner's own, are replaced in the lab's list.
  const seeded = await seedRooms(lab, progress);
  progress.done("ghosts are back in the shared rooms");
  const answered = await ask({ lab, seed: seeded, from: partner, publisher: org });
  const programs = comparePrograms(before, await programsOf(lab, org));
  return {
    ...{ act: "restore", observed, decidedAt, acted: acted.output, accepted, answered, programs },
    problems: [
      ...(acted.code === 0 ? [] : [`federation restore --apply ended with ${acted.code}`]),
      ...observed.filter((one) => !isIn(one)).map(({ kind }) => `${kind} is not let in`),
      ...programs.restarted.map((name) => `${name} was restarted`),
      ...(answered.audit.outcome === "completed" ? [] : ["the question was not answered"]),
    ],
  };
}
