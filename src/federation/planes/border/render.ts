// Plane 3 as a file: policy.json for the border module inside the homeserver.
// Invariant: the own server is always in it; the module denies everybody otherwise.
import type { PolicyFile } from "../../../rendered-files/policy-file.ts";
import { admittedServers, oncePerRegistry } from "../admitted.ts";
import { jsonFile } from "../emit-yaml.ts";
import type { PlaneRender } from "../plane.ts";
import { borderKubernetes } from "./kubernetes.ts";

export const BORDER_POLICY = "border/policy.json";

const policyOf = oncePerRegistry((registry): string => {
  const policy: PolicyFile = {
    allowed_servers: [...admittedServers(registry, "border")],
    ...(registry.organisation.border.inviteRule === "deny_all" ? { invite_rule: "deny_all" } : {}),
  };
  return jsonFile(policy);
});

export const borderRender: PlaneRender = {
  name: "border",
  render: (registry) => new Map([[BORDER_POLICY, policyOf(registry)]]),
  renderKubernetes: (registry) => borderKubernetes(registry, policyOf(registry)),
  renderPartnerKubernetes: () => new Map(),
};
