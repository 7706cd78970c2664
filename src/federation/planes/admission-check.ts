// The last look before a rendered list of servers reaches a homeserver. A list is edited by nobody but the
// renderer, yet a commit may hold anything: what would cut a partner off, lock out the own server or admit
// somebody is refused before a byte of it is written.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { Registry } from "../registry/partner.ts";
import { admittedServers } from "./admitted.ts";
import type { PlaneName } from "./names.ts";

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
