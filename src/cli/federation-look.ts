// What `federation probe` and `federation evidence` share: one partner, looked at from inside, and from outside
// where a probe.yaml says how.
import { resolve } from "node:path";
import { systemClock, systemRandom } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { parseRoomId, type RoomId } from "../domain/identifiers.ts";
import type { FederationConfig } from "../federation/config.ts";
import { findPartner } from "../federation/containment/find-partner.ts";
import { type CurrentState, currentState } from "../federation/current.ts";
import type { PlaneName } from "../federation/planes/names.ts";
import { loadProbeConfig, type ProbeConfig } from "../federation/probes/config.ts";
import { probeFromInside } from "../federation/probes/inside.ts";
import { probeFromOutside } from "../federation/probes/outside.ts";
import { violationOf } from "../federation/probes/violations.ts";
import type { PartnerEntry } from "../federation/registry/partner.ts";
import type { EvidenceItem } from "../records/evidence-item.ts";
import { openForCommand } from "./federation-options.ts";

export interface Look {
  readonly config: FederationConfig;
  readonly current: CurrentState;
  readonly partner: PartnerEntry;
  readonly inside: readonly EvidenceItem[];
  readonly outside: readonly EvidenceItem[];
}

/**
 * @throws DrawbridgeError `usage` when probe.yaml is about somebody else, and what opening a deployment throws
 */
export async function lookAt(
  name: string,
  options: { readonly config: string; readonly as?: string; readonly planes: readonly PlaneName[] },
): Promise<Look> {
  const { config, federation } = await openForCommand(options.config);
  const current = await currentState(federation);
  const { registry } = current.desired;
  const partner = findPartner(registry, name);
  const probe = options.as === undefined ? undefined : loadProbeConfig(options.as);
  if (probe !== undefined) requireAbout(probe, registry.organisation.serverName, partner);
  const { planes } = options;
  const inside = await probeFromInside(federation.planes, current.desired, partner, planes, systemClock);
  const violations = resolve(config.directory, config.border.violationsFile);
  const outside =
    probe === undefined
      ? []
      : await probeFromOutside(
          probe,
          { clock: systemClock, random: systemRandom },
          {
            planes: new Set(planes),
            rooms: roomsOf(inside),
            violationOf: (eventId) => violationOf(violations, partner.partner, eventId),
          },
        );
  return { config, current, partner, inside, outside };
}

/** The rooms that the rooms plane speaks of, replacements among them. */
function roomsOf(items: readonly EvidenceItem[]): readonly RoomId[] {
  const named = items.filter(({ plane }) => plane === "rooms").map(({ subject }) => parseRoomId(subject));
  return [...new Set(named.filter((room) => room !== undefined))];
}

function requireAbout(probe: ProbeConfig, own: string, { partner }: PartnerEntry): void {
  if (probe.target.serverName === own && probe.as.serverName === partner.serverName) return;
  throw new DrawbridgeError(
    "usage",
    `the probe file looks at ${probe.target.serverName} as ${probe.as.serverName}, not at ${own} as ${partner.serverName}`,
    { mend: "Name the probe file of this partner." },
  );
}
