// A registry as files: every plane, for one machine and for Kubernetes. Pure: the same registry gives the
// same bytes, on any machine and in any order of its files.
import { PLANE_NAMES, type PlaneName } from "../plane-order.ts";
import type { Registry } from "../registry/partner.ts";
import { borderRender } from "./border/render.ts";
import { cardRender } from "./card/render.ts";
import { gatewayRender } from "./gateway/render.ts";
import { resourcesText } from "./kubernetes.ts";
import type { PlaneRender } from "./plane.ts";
import { roomsRender } from "./rooms/render.ts";
import { transportRender } from "./transport/render.ts";

export const PLANE_RENDERS: Readonly<Record<PlaneName, PlaneRender>> = {
  transport: transportRender,
  rooms: roomsRender,
  border: borderRender,
  card: cardRender,
  gateway: gatewayRender,
};

/** Every rendered file by its path in the repository: `rendered/…`, `kubernetes/…`. */
export function renderAll(registry: Registry): ReadonlyMap<string, string> {
  const files = new Map<string, string>();
  const target = registry.organisation.kubernetes;
  for (const plane of PLANE_NAMES) {
    const { render, kubernetes } = PLANE_RENDERS[plane];
    const rendered = render(registry);
    for (const [path, text] of rendered) files.set(`rendered/${path}`, text);
    if (target === undefined || kubernetes === undefined) continue;
    for (const [path, resources] of Object.entries(kubernetes(rendered, registry, target)))
      if (resources.length > 0) files.set(`kubernetes/${path}`, resourcesText(target, plane, resources));
  }
  return files;
}

/** Whether a path of the repository is where renders belong: nothing else may be there. */
export const isRenderedPath = (path: string): boolean => /^(?:rendered|kubernetes)(?:\/|$)/.test(path);

export function planeOfPath(path: string): PlaneName | undefined {
  const [, plane, file] = path.split("/");
  return isRenderedPath(path) && file !== undefined ? PLANE_NAMES.find((name) => name === plane) : undefined;
}
