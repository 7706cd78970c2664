// Plane 2 as a file: what the rooms plane must bring about in every governed room.
// Invariant: a closing partner's host is never the host of a server that `allow` names (the registry refuses
// two servers of one host).
import type { z } from "zod";
import { closedPlanes, type Registry } from "../../registry/partner.ts";
import { admittedServers, openPartners } from "../admitted.ts";
import { jsonFile } from "../emit-yaml.ts";
import type { PlaneRender } from "../plane.ts";
import { aclAllow } from "./acl.ts";
import type { RoomsIntent } from "./rooms-intent.ts";

export const ROOMS_INTENT = "rooms/rooms.json";

function intentOf(registry: Registry): string {
  const closing = registry.partners.filter(({ partner }) => closedPlanes(partner).includes("rooms"));
  const open = openPartners(registry, "rooms").map(({ partner }) => partner);
  const notInvitedAgain = open
    .filter(({ rooms }) => rooms.whenRestored === "none")
    .map(({ serverName }) => serverName);
  const intent: z.input<typeof RoomsIntent> = {
    version: 1,
    own: registry.organisation.serverName,
    allow: aclAllow(admittedServers(registry, "rooms")),
    retained: open.map(({ serverName }) => serverName),
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
    ...(notInvitedAgain.length === 0 ? {} : { notInvitedAgain }),
  };
  return jsonFile(intent);
}

export const roomsRender: PlaneRender = {
  render: (registry) => new Map([[ROOMS_INTENT, intentOf(registry)]]),
  // The reconciler reads the intent from the repository; no program of a cluster mounts it.
  renderKubernetes: () => new Map(),
};
