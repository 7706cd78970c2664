// The plane's Kubernetes target: a ConfigMap with the border module's policy; mounted as a folder (not by subPath), it changes by the rename of a link, which the module follows.
import type { Registry } from "../../registry/partner.ts";
import { configMap, resourceFile } from "../kubernetes.ts";
import type { RenderedFiles } from "../plane.ts";

/** @param file what is rendered for one machine, of which the ConfigMap is the same bytes */
export function borderKubernetes(registry: Registry, file: string): RenderedFiles {
  return resourceFile(registry, "border/policy.yaml", [
    configMap(registry, "border", "drawbridge-policy", { "policy.json": file }),
  ]);
}
