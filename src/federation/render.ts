// A registry as files: every plane, for one machine and for Kubernetes. Pure: the same registry gives the
// same bytes, on any machine and in any order of its files.

import { borderRender } from "./planes/border/render.ts";
import { cardRender } from "./planes/card/render.ts";
import { gatewayRender } from "./planes/gateway/render.ts";
import { PLANE_NAMES, type PlaneName } from "./planes/names.ts";
import type { PlaneRender, RenderedFiles } from "./planes/plane.ts";
import { roomsRender } from "./planes/rooms/render.ts";
import { transportRender } from "./planes/transport/render.ts";
import type { PartnerEntry, Registry } from "./registry/partner.ts";

export const PLANE_RENDERS: Readonly<Record<PlaneName, PlaneRender>> = {
  transport: transportRender,
  rooms: roomsRender,
  border: borderRender,
  card: cardRender,
  gateway: gatewayRender,
};

/** Every rendered file by its path in the repository: `rendered/…`, `kubernetes/…`. */
export function renderAll(registry: Registry): ReadonlyMap<string, string> {
  const files = new Map(renderShared(registry));
  for (const entry of registry.partners) {
    for (const [path, text] of renderPartner(registry, entry)) files.set(path, text);
  }
  return files;
}

/** The files that speak of all partners at once. */
export function renderShared(registry: Registry): ReadonlyMap<string, string> {
  const files = new Map<string, string>();
  for (const plane of PLANE_NAMES) {
    addBelow(files, "rendered", PLANE_RENDERS[plane].render(registry));
    addBelow(files, "kubernetes", PLANE_RENDERS[plane].renderKubernetes(registry));
  }
  return files;
}

/** The files of one partner alone: with `renderShared`, all that a change of this partner can change. */
export function renderPartner(registry: Registry, entry: PartnerEntry): ReadonlyMap<string, string> {
  const files = new Map<string, string>();
  for (const plane of PLANE_NAMES) {
    addBelow(files, "kubernetes", PLANE_RENDERS[plane].renderPartnerKubernetes(registry, entry));
  }
  return files;
}

/** The plane that a rendered path belongs to; undefined for any other path of the repository. */
export function planeOfPath(path: string): PlaneName | undefined {
  const [folder, plane, file] = path.split("/");
  if ((folder !== "rendered" && folder !== "kubernetes") || file === undefined) return undefined;
  return PLANE_NAMES.find((name) => name === plane);
}

function addBelow(files: Map<string, string>, folder: string, rendered: RenderedFiles): void {
  for (const [path, text] of rendered) files.set(`${folder}/${path}`, text);
}
