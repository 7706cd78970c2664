// Sets `contained`, or one plane, in a partner's file; nothing else of it changes.
import { editYaml } from "../../runtime/edit-yaml.ts";
import type { PlaneName } from "../plane-order.ts";
import type { PlaneState } from "../registry/partner.ts";

/**
 * @param text a valid partner file
 * @throws DrawbridgeError `internal` when the text is no such file
 */
export function setContained(text: string, contained: boolean): string {
  return editYaml(text, [{ path: ["contained"], value: contained, after: ["classification"] }]);
}

/**
 * Opens or closes one plane in `planes`.
 * @param text a valid partner file
 * @throws DrawbridgeError `internal` when the text is no such file
 */
export function setPlane(text: string, plane: PlaneName, state: PlaneState): string {
  return editYaml(text, [{ path: ["planes", plane], value: state, after: ["contained", "classification"] }]);
}
