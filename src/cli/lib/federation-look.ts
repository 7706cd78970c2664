// What `federation probe` and `federation evidence` share: one partner, looked at from inside, and from outside
// where a probe.yaml says how.
import { systemClock, systemRandom } from "../../domain/clock.ts";
import type { FederationConfig } from "../../federation/config.ts";
import { observeFromOutside, requireAbout } from "../../federation/evidence/observe-from-outside.ts";
import type { PlaneName } from "../../federation/plane-order.ts";
import { loadProbeConfig } from "../../federation/probes/config.ts";
import { probeFromInside } from "../../federation/probes/inside.ts";
import { acceptedState, type CurrentState } from "../../federation/reconcile/assess.ts";
import { findPartner } from "../../federation/registry/find-partner.ts";
import type { PartnerEntry } from "../../federation/registry/partner.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { openForCommand, say, short } from "./federation-options.ts";

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
  options: { readonly config: string; readonly probeConfig?: string; readonly planes: readonly PlaneName[] },
): Promise<Look> {
  const { config, federation } = await openForCommand(options.config);
  const current = await acceptedState(federation);
  if (current.refusal !== undefined) {
    say(`NOTE: the head is refused: ${current.refusal.detail}`);
    say(`Looked at by ${short(current.desired.revision)}, which was taken up before.`);
  }
  const { registry } = current.desired;
  const partner = findPartner(registry, name);
  const probe = options.probeConfig === undefined ? undefined : loadProbeConfig(options.probeConfig);
  if (probe !== undefined) {
    requireAbout(probe, registry.organisation.serverName, partner.partner.serverName);
  }
  const { planes } = options;
  const inside = await probeFromInside(federation.planes, current.desired, partner, planes, systemClock);
  const sources = { clock: systemClock, random: systemRandom };
  const outside =
    probe === undefined ? [] : await observeFromOutside({ config, probe, sources }, partner, planes, inside);
  return { config, current, partner, inside, outside };
}
