import { systemClock, systemRandom } from "../../domain/clock.ts";
import { loadFederationConfig } from "../../federation/config.ts";
import { outsideProbe } from "../../federation/evidence/observe-from-outside.ts";
import type { PlaneName } from "../../federation/plane-order.ts";
import { probeFromInside } from "../../federation/probes/from-inside.ts";
import { acceptedState } from "../../federation/reconcile/accept-head.ts";
import { type Federation, openFederation, type Reporter } from "../../federation/reconcile/context.ts";
import { findPartner } from "../../federation/registry/partner.ts";
import { type DeploymentOptions, fromConfigFile } from "./options.ts";
import { say, short } from "./output.ts";
import { progressReporter } from "./progress.ts";

export async function openForCommand(
  file: string,
  reporter: Reporter = progressReporter,
): Promise<Federation> {
  const config = fromConfigFile(file, "federation", loadFederationConfig);
  const federation = await openFederation(config, { clock: systemClock, random: systemRandom, reporter });
  return { ...federation, onWait: () => say("another change is being made; waiting") };
}

export function outsideOf(federation: Federation, file: string | undefined) {
  return file === undefined ? undefined : outsideProbe(federation, file);
}

/** Observes a partner as the registry has it. @throws DrawbridgeError `usage` when probe.yaml is about another one */
export async function probePartner(
  name: string,
  options: DeploymentOptions & { readonly planes: readonly PlaneName[] },
) {
  const federation = await openForCommand(options.config);
  const { config } = federation;
  const current = await acceptedState(federation);
  if (current.refusal !== undefined) {
    say(`NOTE: the head is refused: ${current.refusal.detail}`);
    say(`The partner is probed by ${short(current.desired.revision)}, which was accepted before.`);
  }
  const { registry } = current.desired;
  const partner = findPartner(registry, name);
  const { planes } = options;
  const probe = outsideOf(federation, options.probeConfig);
  const inside = await probeFromInside(federation.planes, current.desired, partner, planes, systemClock);
  const outside = (await probe?.(registry.organisation.serverName, partner, planes, inside)) ?? [];
  return { config, current, partner, inside, outside };
}
