// Sets `contained`, one plane, or what is retired in the text of a valid partner file; nothing else of it changes. Each
// throws DrawbridgeError `internal` when the text is no such file.
import { editYaml } from "../../runtime/edit-yaml.ts";
import type { PlaneName } from "../plane-order.ts";
import { type Partner, type PlaneState, retireAll } from "../registry/partner.ts";

export function setContained(text: string, contained: boolean): string {
  return editYaml(text, [{ path: ["contained"], value: contained }]);
}

export function setPlane(text: string, plane: PlaneName, state: PlaneState): string {
  return editYaml(text, [{ path: ["planes", plane], value: state }]);
}

/**
 * Retires every identity that the entry pins. @param applicants clients of the organisation's with which it had applied
 * @param pinnedElsewhere thumbprints that other entries pin: such a key is retired for this partner alone
 */
export function setRetired(
  text: string,
  partner: Partner,
  pinnedElsewhere: ReadonlySet<string>,
  applicants: readonly { readonly clientId: string }[] = [],
): string {
  const { cardKeys, clients: own, serverKeys } = retireAll(partner);
  const clients = [...new Set([...own, ...applicants.map(({ clientId }) => clientId)])];
  const keys = cardKeys.map(({ keyId, thumbprint }) =>
    thumbprint === undefined || pinnedElsewhere.has(thumbprint) ? { keyId } : { keyId, thumbprint },
  );
  return editYaml(text, [{ path: ["retired"], value: { cardKeys: keys, clients, serverKeys } }]);
}
