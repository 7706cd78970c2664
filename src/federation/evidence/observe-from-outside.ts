// One partner observed from outside as a probe.yaml says, with what the border denied as the explanation of what did
// not arrive.
import { resolve } from "node:path";
import type { Clock, Random } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { type RoomId, roomOfVisibleId } from "../../domain/identifiers.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import type { FederationConfig } from "../config.ts";
import type { PlaneName } from "../plane-order.ts";
import type { ProbeConfig } from "../probes/config.ts";
import { probeFromOutside } from "../probes/from-outside.ts";
import type { Explanation } from "../probes/probed-room.ts";
import type { PartnerEntry } from "../registry/partner.ts";
import type { EvidencePackBody } from "./pack.ts";
import { collectStream } from "./record-streams.ts";

export interface OutsideObservation {
  readonly config: FederationConfig;
  readonly probe: ProbeConfig;
  readonly sources: { readonly clock: Clock; readonly random: Random };
}

/**
 * Makes every probe that the partner could make.
 * @param inside what was observed from inside, for the rooms that it names
 * @throws DrawbridgeError `secret_unavailable`
 */
export function observeFromOutside(
  { config, probe, sources }: OutsideObservation,
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
  const named = items
    .filter(({ plane }) => plane === "rooms")
    .map(({ subject }) => roomOfVisibleId(subject ?? ""));
  return [...new Set(named.filter((room) => room !== undefined))];
}

/** @throws DrawbridgeError `usage` when a probe.yaml is about somebody else */
export function requireAbout(probe: ProbeConfig, own: string, partner: string): void {
  if (probe.target.serverName === own && probe.as.serverName === partner) return;
  throw new DrawbridgeError(
    "usage",
    `the probe file probes ${probe.target.serverName} as ${probe.as.serverName}, not ${own} as ${partner}`,
    { hint: "Name the probe file of this partner." },
  );
}

// Finds in the border's violations why an event did not come in.

/** Finds an event in the violations file; undefined when no line names it. */
export async function violationOf(
  file: string,
  partner: { readonly serverName: string; readonly azp: string },
  eventId: string,
): Promise<Explanation | undefined> {
  const window = { since: "1970-01-01T00:00:00.000Z", until: "9999-12-31T23:59:59.999Z" };
  const about = { ...partner, agents: new Set<string>() };
  const { items } = await collectStream("border_violations", file, about, window);
  const found = items.findLast(({ facts }) => isAbout(facts, eventId));
  if (found === undefined || found.facts.stream !== "border_violations") return undefined;
  const { reason, policy_digest } = found.facts;
  return { layer: "border", reason, references: policy_digest === null ? [] : [policy_digest] };
}

function isAbout(facts: EvidencePackBody["stream_items"][number]["facts"], eventId: string): boolean {
  return facts.stream === "border_violations" && facts.event === eventId;
}
