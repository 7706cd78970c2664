// Takes containment back: the partner's people accept the invitations that come with it, and one of them asks.

import { type AskResult, ask } from "../ask/ask.ts";
import { ghostFor } from "../endpoints.ts";
import type { Observed } from "../observe/attempt-watch.ts";
import { comparePrograms, type ProgramsAfter, programsOf } from "../observe/restarts.ts";
import { TRAITS } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import { type Accepted, acceptInvitations } from "../seed/memberships.ts";
import { roomOf, seed } from "../seed/seed.ts";
import { waitUntilReconciled } from "../status/federation.ts";
import { about, type Said, type Scene, SOURCES, whileTrying } from "./contain.ts";

const SETTLE_MS = 20_000;
const ANSWER_TIMEOUT_MS = 60_000;

export interface Restored {
  readonly act: "restore";
  readonly observed: readonly Observed[];
  readonly decidedAt: number;
  readonly acted: Said["said"];
  readonly accepted: readonly Accepted[];
  readonly answered: AskResult;
  readonly programs: ProgramsAfter;
  /** What is not as it should be: a plane that is closed, a restart, a question without an answer. */
  readonly problems: readonly string[];
}

/** @throws DrawbridgeError `agent_unavailable` when nothing came of the question */
export async function restore(scene: Scene, progress: Progress): Promise<Restored> {
  const { lab, org, partner } = scene;
  const before = await programsOf(lab, org);
  // A room that the partner had made is replaced by then, and does not come back: what replaced it does.
  const isGone = (roomOf(scene.seed, org)?.replacedBy ?? org) === partner;
  const isIn = ({ plane, lastPass, lastRefusal }: Observed) =>
    (isGone && plane === "rooms") ||
    (lastPass !== null && (lastRefusal === null || lastPass.afterMs > lastRefusal.afterMs));
  const { observed, acted, decidedAt } = await whileTrying(scene, false, async (watch) => {
    const decided = watch.decide();
    const done = await about(scene, "restore", "--apply");
    await watch.until(isIn, SETTLE_MS);
    return { observed: await watch.stop(), acted: done, decidedAt: decided };
  });
  progress.done(`${org} has restored ${partner}`);
  await waitUntilReconciled(lab, SOURCES.clock, progress);
  const accepted = await acceptInvitations(lab, scene.seed, partner, org, SOURCES);
  progress.done(`people of ${partner} have accepted ${accepted.length} invitations of ${org}`);
  // What containment has ended for good, such as a room of the partner's own, is made anew.
  const seeded = await seed(lab, SOURCES, progress);
  progress.done("ghosts are back in the shared rooms");
  const room = roomOf(seeded, org);
  if (room === undefined) throw new TypeError(`${org} has no room`);
  const answered = await ask(
    {
      ...{ lab, seed: seeded, from: partner, bridgeOf: partner, publisher: org, room },
      ghost: ghostFor(lab, partner, org),
      question: TRAITS[org].sampleQuestion,
      timeoutMs: ANSWER_TIMEOUT_MS,
    },
    SOURCES,
  );
  const programs = comparePrograms(before, await programsOf(lab, org));
  return {
    ...{ act: "restore", observed, decidedAt, acted: acted.said, accepted, answered, programs },
    problems: [
      ...(acted.code === 0 ? [] : [`federation restore --apply ended with ${acted.code}`]),
      ...observed.filter((one) => !isIn(one)).map(({ kind }) => `${kind} is not let in`),
      ...programs.restarted.map((name) => `${name} was restarted`),
      ...(answered.audit.outcome === "completed" ? [] : ["the question was not answered"]),
    ],
  };
}
