// Whom a plane admits, in the order in which every rendered list names them.
import { type PartnerEntry, planeState, type Registry } from "../registry/partner.ts";
import type { PlaneName } from "./names.ts";

/** Partners to whom a plane is open, sorted by server name. */
export function openPartners({ partners }: Registry, plane: PlaneName): readonly PartnerEntry[] {
  return partners.filter(({ partner }) => planeState(partner, plane) === "open");
}

/** Own server and those to whom a plane is open, sorted. */
export function admittedServers(registry: Registry, plane: PlaneName): readonly string[] {
  const servers = openPartners(registry, plane).map(({ partner }) => partner.serverName);
  return [registry.organisation.serverName, ...servers].sort();
}

/** Renders once a registry: what both targets hold is made for the first and kept for the second. */
export function oncePerRegistry<Value>(render: (registry: Registry) => Value): (registry: Registry) => Value {
  const rendered = new WeakMap<Registry, { readonly value: Value }>();
  return (registry) => {
    const known = rendered.get(registry) ?? { value: render(registry) };
    rendered.set(registry, known);
    return known.value;
  };
}
