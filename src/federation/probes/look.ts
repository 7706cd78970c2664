// One partner as the operator's parts see it, and from outside where a probe.yaml says how.
import { resolve } from "node:path";
import type { Clock, Random } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { parseRoomId, type RoomId } from "../../domain/identifiers.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import type { FederationConfig } from "../config.ts";
import type { PlaneName } from "../planes/names.ts";
import type { PartnerEntry } from "../registry/partner.ts";
import type { ProbeConfig } from "./config.ts";
import { probeFromOutside } from "./outside.ts";
import { violationOf } from "./violations.ts";

export interface OutsideLook {
  readonly config: FederationConfig;
  readonly probe: ProbeConfig;
  readonly sources: { readonly clock: Clock; readonly random: Random };
}

/**
 * What the partner could try, tried.
 * @param inside what was seen from inside, for the rooms that it names
 * @throws DrawbridgeError `secret_unavailable`
 */
export function lookFromOutside(
  { config, probe, sources }: OutsideLook,
  { partner }: PartnerEntry,
  planes: readonly PlaneName[],
  inside: readonly EvidenceItem[],
): Promise<readonly EvidenceItem[]> {
  const violations = resolve(config.directory, config.border.violationsFile);
  return probeFromOutside(probe, sources, {
    planes: new Set(planes),
    rooms: roomsOf(inside),
    violationOf: (eventId) => violationOf(violations, partner, eventId),
  });
}

/** The rooms that the rooms plane speaks of, replacements among them. */
function roomsOf(items: readonly EvidenceItem[]): readonly RoomId[] {
  const named = items.filter(({ plane }) => plane === "rooms").map(({ subject }) => parseRoomId(subject));
  return [...new Set(named.filter((room) => room !== undefined))];
}

/** @throws DrawbridgeError `usage` when a probe.yaml is about somebody else */
export function requireAbout(probe: ProbeConfig, own: string, partner: string): void {
  if (probe.target.serverName === own && probe.as.serverName === partner) return;
  throw new DrawbridgeError(
    "usage",
    `the probe file looks at ${probe.target.serverName} as ${probe.as.serverName}, not at ${own} as ${partner}`,
    { hint: "Name the probe file of this partner." },
  );
}
