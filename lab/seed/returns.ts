// What was put right in rooms that the lab had before: a restore invites people again, and somebody has to accept.
// Pure.
import type { SeededRoom } from "./seed.ts";

/** Somebody who was not in a shared room, and is now. */
export interface Join {
  readonly user: string;
  readonly room: Pick<SeededRoom, "roomId" | "alias">;
}

/** Lines for people: who came back into which room, and which rooms were opened anew; none the first time. */
export function returnLines(
  before: readonly SeededRoom[],
  now: readonly SeededRoom[],
  joins: readonly Join[],
): readonly string[] {
  const isKnown = (room: Pick<SeededRoom, "roomId">) => before.some(({ roomId }) => roomId === room.roomId);
  const aliases = new Map<string, Set<string>>();
  for (const { user, room } of joins.filter((join) => isKnown(join.room))) {
    aliases.set(user, (aliases.get(user) ?? new Set()).add(room.alias));
  }
  const next = now.filter((room) => !isKnown(room) && before.some(({ alias }) => alias === room.alias));
  const anew = next.filter(({ replacedBy }) => replacedBy === undefined);
  return [
    ...[...aliases].map(([user, rooms]) => `${user} has accepted, and is back in ${[...rooms].join(", ")}`),
    ...next
      .filter(({ replacedBy }) => replacedBy !== undefined)
      .map(
        ({ alias, roomId, replacedBy }) =>
          `${alias} is ${roomId} now, by which ${replacedBy} has replaced it`,
      ),
    ...(anew.length === 0
      ? []
      : [`opened anew, as it was given up: ${anew.map(({ alias }) => alias).join(", ")}`]),
  ];
}
