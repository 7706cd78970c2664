// The partner's people ask the other's agent, again and again, while the glass is broken. Counted by what the
// partner's own bridge writes into its audit file.
import type { Clock, Random } from "../../src/domain/clock.ts";
import type { RoomId } from "../../src/domain/identifiers.ts";
import { ghostFor } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import type { CompleteOrganisation } from "../organisations.ts";
import { findRecord } from "../proof/delegation-record.ts";
import { tailOf } from "../proof/tail.ts";
import { personOf, type Seed } from "../seed/seed.ts";
import type { AttemptFinding, WatchedAttempt } from "./watch.ts";

const ANSWER_TIMEOUT_MS = 15_000;

/** @param room of the partner's own, so that the room itself stays open to the question */
export function questionsOf(
  lab: Lab,
  seed: Seed,
  partner: CompleteOrganisation,
  publisher: CompleteOrganisation,
  room: RoomId,
  sources: { readonly clock: Clock; readonly random: Random },
): WatchedAttempt {
  const { clock } = sources;
  const ghost = ghostFor(lab, partner, publisher);
  const asker = personOf(lab, seed, partner, sources);
  return {
    kind: "question of a person",
    plane: "gateway",
    pauseMs: 200,
    attempt: async (): Promise<AttemptFinding> => {
      // A room that the publisher has put in place of one of the partner's is closed to it with the others.
      const path = `/rooms/${encodeURIComponent(room)}/state/m.room.member/${encodeURIComponent(asker.userId)}`;
      const { status, body } = await asker.request("GET", path);
      if (status === 403 || (status === 200 && body["membership"] !== "join")) {
        return { layer: "homeserver", status: 403, verdict: "closed", reason: "not_in_the_room" };
      }
      const audit = tailOf(lab.paths.organisation(partner).auditFile);
      const eventId = await asker.send(room, {
        msgtype: "m.text",
        body: `${ghost}: What is recorded?`,
        "m.mentions": { user_ids: [ghost] },
      });
      const record = await findRecord(audit, eventId, ghost, clock, clock.now() + ANSWER_TIMEOUT_MS);
      const found = { layer: "bridge", status: null } as const;
      if (record === undefined) return { ...found, verdict: "unknown", reason: "no_answer_yet" };
      const verdict = record.outcome === "completed" ? "open" : "closed";
      return { ...found, verdict, reason: record.terminal_reason };
    },
  };
}
