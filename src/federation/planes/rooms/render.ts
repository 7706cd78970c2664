// Plane 2 as a file: what the rooms plane must bring about in every governed room. Invariants: a closing partner's
// host is never that of a server in `allow` (the registry refuses two servers of one host); no partner is in both
// `retained` and `closing`. Published as docs/reference/schemas/rooms-intent.schema.json.
import * as z from "zod";
import { ServerNameField } from "../../../domain/identifier-fields.ts";
import type { UserId } from "../../../domain/identifiers.ts";
import { jsonText } from "../../../domain/json.ts";
import { isPartnerGhost, PartnerGhosts } from "../../../rendered-files/agents-file.ts";
import { closedPlanes, type Registry } from "../../registry/partner.ts";
import { admittedServers, openPartners, type PlaneRender } from "../plane.ts";
import { aclAllow } from "./acl.ts";

export const ROOMS_INTENT = "rooms/rooms.json";

function fileOf(registry: Registry): string {
  const retained = openPartners(registry, "rooms");
  const closing = registry.partners.filter(({ partner }) => closedPlanes(partner).includes("rooms"));
  const intent: RoomsIntent = {
    version: 1,
    own: registry.organisation.serverName,
    allow: aclAllow(admittedServers(registry, "rooms")),
    retained: retained.map(({ partner }) => partner.serverName),
    ghosts: retained.map(({ partner }) => ({ server: partner.serverName, prefix: partner.ghostPrefix })),
    closing: closing.map(({ name, partner }) => {
      // Removal outlasts containment: a restore must not reopen a plane that is closed for good.
      const removed = partner.planes.rooms === "closed";
      return {
        serverName: partner.serverName,
        name,
        mode: removed ? "removed" : "contained",
        after: removed ? partner.rooms.whenRemoved : partner.rooms.whenContained,
        unclosable: partner.rooms.whenUnclosable,
      };
    }),
  };
  return jsonText(intent);
}

/** The reconciler reads the intent from the repository; no program of a cluster mounts it. */
export const roomsRender: PlaneRender = { render: (registry) => new Map([[ROOMS_INTENT, fileOf(registry)]]) };

const ClosingPartner = z.strictObject({
  serverName: ServerNameField,
  name: z.string().min(1),
  /** `contained`: closed by containment and perhaps soon restored; `removed`: the rooms plane is closed for good. */
  mode: z.enum(["contained", "removed"]),
  after: z.enum(["keep", "read_only", "retire", "replace"]),
  /** A room that cannot be closed is replaced by a new one, or only listed as out of reach. */
  unclosable: z.enum(["replace", "list"]),
});
export type ClosingPartner = z.output<typeof ClosingPartner>;

export const RoomsIntent = z.strictObject({
  version: z.literal(1),
  own: ServerNameField,
  /** `allow` of every governed room's ACL: own and retained servers, both forms of each, sorted. */
  allow: z.array(ServerNameField),
  /** Partners that stay in rooms: their servers must enforce the ACL as well. Full names, sorted. */
  retained: z.array(ServerNameField),
  /** Their bridges' ghosts. */
  ghosts: z.array(PartnerGhosts),
  closing: z.array(ClosingPartner),
});
export type RoomsIntent = z.output<typeof RoomsIntent>;

/**
 * People, and then ghosts, which join at once: Synapse loses for good an invitation of another user of its server that comes
 * while the server enters the room.
 */
export function peopleAndGhosts({ ghosts }: RoomsIntent, users: readonly UserId[]) {
  const isGhost = (user: UserId) => isPartnerGhost(ghosts, user);
  return [users.filter((user) => !isGhost(user)), users.filter(isGhost)] as const;
}
