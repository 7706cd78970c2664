// The plane's Kubernetes target: a ConfigMap with the homeserver's include, mounted beside homeserver.yaml.
import type { Registry } from "../../registry/partner.ts";
import { configMap, resourceFile } from "../kubernetes.ts";
import type { RenderedFiles } from "../plane.ts";

/** @param file what is rendered for one machine, of which the ConfigMap is the same bytes */
export function transportKubernetes(registry: Registry, file: string): RenderedFiles {
  return resourceFile(registry, "transport/homeserver.yaml", [
    configMap(registry, "transport", "drawbridge-homeserver", { "homeserver.yaml": file }),
  ]);
}
