// Plane 2 on a homeserver: finds the rooms, brings each to the intent, and verifies it.
// What is closed and how it is taken back: docs/reference/rooms-plane.md.
import type { ServerName } from "../../../domain/identifiers.ts";
import type { FederationConfig } from "../../config.ts";
import type { PlaneRuntime, RuntimeDependencies } from "../plane.ts";
import { closeRooms } from "./close-all-rooms.ts";
import { type DriftCursor, roomsDrift } from "./drift.ts";
import { roomsEvidence } from "./operator-evidence.ts";
import { markRemoved, reopenRooms } from "./reopen-all-rooms.ts";
import { withSession } from "./session.ts";

/** The rooms plane of one deployment. */
export function roomsRuntime(config: FederationConfig, { clock }: RuntimeDependencies): PlaneRuntime {
  const quiet = { clock, note: () => undefined, writes: false } as const;
  const cursor: DriftCursor = {};
  return {
    name: "rooms",
    apply: (desired, progress) =>
      withSession(
        config,
        desired,
        { clock, note: (text) => progress.note(text), writes: true },
        async (session) => {
          const closed = await closeRooms(session);
          await markRemoved(session);
          const closing = new Set<string>(session.intent.closing.map(({ serverName }) => serverName));
          const reopening = [...session.journals.keys()].filter((server) => !closing.has(server));
          const reopened = await reopenRooms(session, reopening as ServerName[]);
          const changed = closed.changed || reopened.changed;
          const outOfReach = [...closed.outOfReach, ...reopened.outOfReach];
          return outOfReach.length === 0
            ? { state: "in_force", changed }
            : { state: "incomplete", changed, outOfReach };
        },
      ),
    drift: (desired) => withSession(config, desired, quiet, (session) => roomsDrift(session, cursor)),
    probe: (desired, { partner }, covering) =>
      withSession(config, desired, quiet, (session) =>
        roomsEvidence(session, partner.serverName as ServerName, covering),
      ),
  };
}
