// The plane's Kubernetes target: a ConfigMap with what the reconciler must bring about in rooms.
import type { Registry } from "../../registry/partner.ts";
import { configMap, resourceFile } from "../kubernetes.ts";
import type { RenderedFiles } from "../plane.ts";

/** @param file what is rendered for one machine, of which the ConfigMap is the same bytes */
export function roomsKubernetes(registry: Registry, file: string): RenderedFiles {
  return resourceFile(registry, "rooms/rooms.yaml", [
    configMap(registry, "rooms", "drawbridge-rooms", { "rooms.json": file }),
  ]);
}
