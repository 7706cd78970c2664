// One partner observed from outside as a probe.yaml says, with what the border denied as the explanation of what did
// not arrive.
import { resolve } from "node:path";
import { DrawbridgeError } from "../../domain/errors.ts";
import { type RoomId, roomOfVisibleId } from "../../domain/identifiers.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { loadProbeConfig, type ProbeConfig } from "../probes/config.ts";
import { probeFromOutside } from "../probes/from-outside.ts";
import type { Explanation } from "../probes/probed-room.ts";
import type { Federation } from "../reconcile/context.ts";
import type { ObserveFromOutside } from "../workflow/run-step.ts";
import { collectStream } from "./record-streams.ts";

/** @throws DrawbridgeError `usage` where the file is about another server or partner, `secret_unavailable` */
export function outsideProbe(
  { config, clock, random }: Pick<Federation, "config" | "clock" | "random">,
  file: string,
): ObserveFromOutside {
  const probe = loadProbeConfig(file);
  const violations = resolve(config.directory, config.border.violationsFile);
  return async (own, { partner }, planes, inside) => {
    requireAbout(probe, own, partner.serverName);
    const options = { planes: new Set(planes), rooms: roomsOf(inside) };
    const explain = (eventId: string) => violationOf(violations, partner, eventId);
    return probeFromOutside(probe, { clock, random }, { ...options, violationOf: explain });
  };
}

function roomsOf(items: readonly EvidenceItem[]): readonly RoomId[] {
  const named = items
    .filter(({ plane }) => plane === "rooms")
    .map(({ subject }) => roomOfVisibleId(subject ?? ""));
  return [...new Set(named.filter((room) => room !== undefined))];
}

/** @throws DrawbridgeError `usage` when a probe.yaml is about somebody else */
function requireAbout({ target, as }: ProbeConfig, own: string, partner: string): void {
  if (target.serverName === own && as.serverName === partner) return;
  const probed = `${target.serverName} as ${as.serverName}`;
  throw new DrawbridgeError("usage", `the probe file probes ${probed}, not ${own} as ${partner}`, {
    hint: "Name the probe file of this partner.",
  });
}

/** Why an event did not come in, by the violations file; undefined when no line names it. */
export async function violationOf(
  file: string,
  partner: { readonly serverName: string; readonly azp: string },
  eventId: string,
): Promise<Explanation | undefined> {
  const window = { since: "1970-01-01T00:00:00.000Z", until: "9999-12-31T23:59:59.999Z" };
  const { items } = await collectStream("border_violations", file, partner, window);
  const found = items.findLast(({ facts }) => "event" in facts && facts.event === eventId);
  if (found?.facts.stream !== "border_violations") return undefined;
  const { reason, policy_digest } = found.facts;
  return { layer: "border", reason, references: policy_digest === null ? [] : [policy_digest] };
}
