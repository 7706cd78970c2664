// Whether a change closes or opens, and so the order of its planes. Invariants: a change that closes anything for
// anybody is applied in closing order, also when it opens something else; where it is unknown what was in force,
// everybody counts as admitted.
import { CLOSING_ORDER, OPENING_ORDER, PLANE_NAMES, type PlaneName } from "../plane-order.ts";
import { clientsInForce, type Partner, planeState, type Registry } from "../registry/partner.ts";

export type Direction = "closing" | "opening";

/** The order for going from one registry to another. */
export function directionOf(before: Registry | undefined, after: Registry): Direction {
  return grants(after, before) ? "opening" : "closing";
}

export function orderOf(direction: Direction): readonly PlaneName[] {
  return direction === "closing" ? CLOSING_ORDER : OPENING_ORDER;
}

/** Whether everything that `before` admits is admitted by `after` as well. */
function grants(after: Registry, before: Registry | undefined): boolean {
  if (before === undefined) {
    return after.partners.every(({ partner }) =>
      PLANE_NAMES.every((plane) => planeState(partner, plane) === "open"),
    );
  }
  const partners = new Map(after.partners.map(({ partner }) => [partner.serverName, partner]));
  return (
    before.partners.every(({ partner }) => keepsPartner(partner, partners.get(partner.serverName))) &&
    keepsOwnClients(before, after)
  );
}

function keepsPartner(before: Partner, after: Partner | undefined): boolean {
  if (after === before) return true;
  return (
    PLANE_NAMES.every(
      (plane) =>
        planeState(before, plane) === "closed" ||
        (after !== undefined && planeState(after, plane) === "open"),
    ) &&
    (planeState(before, "gateway") === "closed" ||
      (before.azp === after?.azp && includesAll(after.gateway?.invokes, before.gateway?.invokes))) &&
    (planeState(before, "card") === "closed" ||
      includesAll(Object.keys(after?.card.consumes ?? {}), Object.keys(before.card.consumes)))
  );
}

function keepsOwnClients(before: Registry, after: Registry): boolean {
  const clients = new Map(clientsInForce(after).map((client) => [client.clientId, client]));
  return (
    clientsInForce(before).every((client) => {
      const now = clients.get(client.clientId);
      return !client.enabled || (now?.enabled === true && includesAll(now.invokes, client.invokes));
    }) && includesAll(Object.keys(after.organisation.agents), Object.keys(before.organisation.agents))
  );
}

function includesAll(all: readonly string[] | undefined, some: readonly string[] | undefined): boolean {
  return (some ?? []).every((one) => all?.includes(one) === true);
}
