// Plane 3 as a file: policy.json for the border module inside the homeserver.
// Invariant: the own server is always in it; the module denies everybody otherwise.
import { jsonText } from "../../../domain/json.ts";
import type { PolicyFile } from "../../../rendered-files/border-policy.ts";
import type { Registry } from "../../registry/partner.ts";
import { configMap } from "../kubernetes.ts";
import { admittedServers, type PlaneRender } from "../plane.ts";

export const BORDER_POLICY = "border/policy.json";

export function policyOf(registry: Registry): PolicyFile {
  return {
    allowed_servers: [...admittedServers(registry, "border")],
    ...(registry.organisation.border.inviteRule === "deny_all" ? { invite_rule: "deny_all" } : {}),
  };
}

export const borderRender: PlaneRender = {
  render: (registry) => new Map([[BORDER_POLICY, jsonText(policyOf(registry))]]),
  // Mounted as a folder, not by subPath: the kubelet then replaces it by renaming a link, which the module follows.
  kubernetes: (files) => ({
    "border/policy.yaml": [configMap("drawbridge-policy", { "policy.json": files.get(BORDER_POLICY) })],
  }),
};
