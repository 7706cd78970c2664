// Whom a plane admits, in the order in which every rendered list names them, and the check of a rendered list before
// a homeserver gets it: a commit may hold anything, so a list that cuts off a partner or the own server, or admits
// somebody, is refused before a byte of it is written.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { PlaneName } from "../plane-order.ts";
import { type PartnerEntry, planeState, type Registry } from "../registry/partner.ts";

/** Partners to whom a plane is open, sorted by server name. */
export function openPartners({ partners }: Registry, plane: PlaneName): readonly PartnerEntry[] {
  return partners.filter(({ partner }) => planeState(partner, plane) === "open");
}

/** Own server and those to whom a plane is open, sorted. */
export function admittedServers(registry: Registry, plane: PlaneName): readonly string[] {
  const servers = openPartners(registry, plane).map(({ partner }) => partner.serverName);
  return [registry.organisation.serverName, ...servers].sort();
}

/**
 * Checks that a list holds exactly those whom the registry admits to a plane.
 * @throws DrawbridgeError `head_refused` naming the first server that is missing or too many
 */
export function assertAdmits(
  registry: Registry,
  plane: PlaneName,
  file: string,
  servers: readonly string[],
): void {
  const own = registry.organisation.serverName;
  const wanted = new Set(admittedServers(registry, plane));
  const found = new Set(servers);
  const refuse = (what: string) => {
    throw new DrawbridgeError("head_refused", `rendered/${file} ${what}`, {
      hint: "Run `drawbridge federation render` and commit what it writes; nothing was applied.",
    });
  };
  if (!found.has(own)) refuse(`leaves out ${own}, which is this organisation's own server`);
  for (const server of wanted)
    if (!found.has(server)) refuse(`cuts off ${server}, which the registry admits`);
  for (const server of found) {
    if (!wanted.has(server)) refuse(`admits ${JSON.stringify(server)}, which the registry does not`);
  }
}
