// The partner's people accept the invitations by which a restore lets them back.
import { z } from "zod";
import type { Clock, Random } from "../../domain/clock.ts";
import { parseRoomId, parseUserId, serverOf } from "../../domain/identifiers.ts";
import { homeserverEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { MatrixUser } from "../matrix-user.ts";
import type { CompleteOrganisation } from "../organisations.ts";
import type { Seed } from "../seed/seed.ts";

export interface Accepted {
  readonly user: string;
  readonly room: string;
}

const Invitations = z.object({
  rooms: z
    .object({
      invite: z
        .record(
          z.string(),
          z.object({
            invite_state: z.object({
              events: z.array(
                z.object({ type: z.string(), state_key: z.string().optional(), sender: z.string() }),
              ),
            }),
          }),
        )
        .default({}),
    })
    .prefault({}),
});

const FILTER = JSON.stringify({
  room: { timeline: { limit: 0 }, state: { types: [] }, ephemeral: { types: [] } },
  presence: { types: [] },
  account_data: { types: [] },
});

/**
 * Every person of `partner` accepts what people of `from` have invited it to; a ghost accepts by its bridge.
 * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`
 */
export async function acceptInvitations(
  lab: Lab,
  seed: Seed,
  partner: CompleteOrganisation,
  from: CompleteOrganisation,
  sources: { readonly clock: Clock; readonly random: Random },
): Promise<readonly Accepted[]> {
  const { clientUrl } = homeserverEndpoints(lab, partner);
  const accepted: Accepted[] = [];
  for (const { userId, accessToken } of seed.users[partner]) {
    const parsed = parseUserId(userId);
    if (parsed === undefined) continue;
    const person = new MatrixUser(clientUrl, parsed, accessToken, sources);
    const query = new URLSearchParams({ filter: FILTER, timeout: "0", set_presence: "offline" });
    const { rooms } = Invitations.parse(await person.call("GET", `/sync?${query}`));
    for (const [room, { invite_state: state }] of Object.entries(rooms.invite)) {
      const invitation = state.events.find(
        ({ type, state_key }) => type === "m.room.member" && state_key === userId,
      );
      const inviter = parseUserId(invitation?.sender);
      if (inviter === undefined || serverOf(inviter) !== lab.serverNames[from]) continue;
      const roomId = parseRoomId(room);
      if (roomId === undefined) continue;
      const { status } = await person.join(roomId, [lab.serverNames[from]]);
      if (status === 200) accepted.push({ user: userId, room });
    }
  }
  return accepted;
}
