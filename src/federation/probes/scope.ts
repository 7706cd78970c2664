// What a change of a partner's planes has to cover, as its registry entry and the parts of this deployment say.
import { parseJson } from "../../domain/json.ts";
import type { Part, Scope } from "../../records/format/fields.ts";
import { PolicyFile, policyDigest } from "../../rendered-files/border-policy.ts";
import { BORDER_POLICY } from "../planes/border/render.ts";
import type { DesiredState } from "../reconcile/desired-state.ts";
import { applicantsOf, type Partner } from "../registry/partner.ts";

/** Rooms and the homeserver's process are not known from files: their fields are null. */
export function scopeOf(
  parts: readonly Part[],
  { serverName, azp, gateway, card }: Partner,
  { planes, registry }: Pick<DesiredState, "planes" | "registry">,
): Scope {
  const policy = PolicyFile.safeParse(parseJson(planes.border.files.get(BORDER_POLICY) ?? "")).data;
  return {
    parts: [...parts],
    client: azp,
    applicants: applicantsOf(registry, { serverName }).map(({ clientId }) => clientId),
    agents: gateway?.invokes ?? [],
    pins: Object.keys(card.consumes),
    rooms: null,
    policy: policy?.allowed_servers.includes(serverName) === true ? policyDigest(policy) : null,
    started_at: null,
  };
}
