// What stands in for the real parts of a deployment when its commands are run as programs; see offboarding-cli.ts.
import { basename, join } from "node:path";
import { systemClock } from "../../src/domain/clock.ts";
import type { FederationConfig } from "../../src/federation/config.ts";
import { PLANE_NAMES, type PlaneName } from "../../src/federation/plane-order.ts";
import type { PlaneRuntimes } from "../../src/federation/planes/runtimes.ts";
import type { ProbeConfig } from "../../src/federation/probes/config.ts";
import type { EvidenceItem } from "../../src/records/format/evidence-item.ts";
import { A, B, fromOutsideOf, scriptedPlanes, type World } from "./offboarding.ts";

function worldOf(directory: string): World {
  const own = basename(directory);
  const startedAt = "2026-01-01T00:00:00.000Z";
  return {
    ...{ own, other: own === A ? B : A, parts: join(directory, "parts"), clock: systemClock, startedAt },
    ...{ answers: new Map(), outOfReach: [] },
  };
}

export function planeRuntimes(config: FederationConfig): PlaneRuntimes {
  return scriptedPlanes(worldOf(config.directory));
}

export async function probeFromOutside(
  probe: ProbeConfig,
  _sources: unknown,
  { planes = new Set(PLANE_NAMES) }: { readonly planes?: ReadonlySet<PlaneName> },
): Promise<readonly EvidenceItem[]> {
  const world = worldOf(probe.directory);
  return fromOutsideOf(world, { azp: `${world.other[0]}-bridge` as never }, [...planes]);
}

export async function residualStatement() {
  return { rooms: [], device_keys: null, tokens_live_until: null, third_servers: [] };
}
