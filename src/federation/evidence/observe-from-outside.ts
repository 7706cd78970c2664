// One partner observed from outside as a probe.yaml says; what the border denied explains what did not arrive.
import { resolve } from "node:path";
import { DrawbridgeError } from "../../domain/errors.ts";
import { roomOfVisibleId } from "../../domain/identifiers.ts";
import { loadProbeConfig } from "../probes/config.ts";
import { probeFromOutside } from "../probes/from-outside.ts";
import type { Federation } from "../reconcile/context.ts";
import type { ObserveFromOutside } from "../workflow/observe-plane.ts";
import { collectStream, type StreamEvidence, type StreamPartner } from "./record-streams.ts";

/** @throws DrawbridgeError `usage` where the file is about another server or partner, `secret_unavailable` */
export function outsideProbe({ config, clock, random }: Federation, file: string | undefined) {
  if (file === undefined) return undefined;
  const probe = loadProbeConfig(file);
  const violations = resolve(config.directory, config.border.violationsFile);
  return (async (own, { partner }, planes, inside) => {
    const { target, as } = probe;
    const { serverName } = partner;
    if (target.serverName !== own || as.serverName !== serverName) {
      const probed = `${target.serverName} as ${as.serverName}`;
      const hint = "Name the probe file of this partner.";
      const what = `the probe file probes ${probed}, not ${own} as ${serverName}`;
      throw new DrawbridgeError("usage", what, { hint });
    }
    const items = inside.filter(({ plane }) => plane === "rooms");
    const rooms = items.flatMap(({ subject }) => roomOfVisibleId(subject ?? "") ?? []);
    const about = { planes: new Set(planes), rooms };
    const why = (eventId: string) => violationOf(violations, partner, eventId);
    return probeFromOutside(probe, { clock, random }, { ...about, violationOf: why });
  }) satisfies ObserveFromOutside;
}

/** Why an event did not come in, by the violations file; undefined when no line names it. */
export async function violationOf(file: string, partner: StreamPartner, eventId: string) {
  const window = { since: "1970-01-01T00:00:00.000Z", until: "9999-12-31T23:59:59.999Z" };
  const names = (facts: StreamEvidence["facts"]) => "event" in facts && facts.event === eventId;
  const { items } = await collectStream("border_violations", file, partner, window, names);
  const found = items.at(-1);
  if (found?.facts.stream !== "border_violations") return undefined;
  const { reason, policy_digest } = found.facts;
  return { layer: "border", reason, references: policy_digest === null ? [] : [policy_digest] };
}
