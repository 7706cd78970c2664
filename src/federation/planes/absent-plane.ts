// A plane whose part this organisation does not run: there is nothing to bring about, and nobody can come in
// by it.
import type { PlaneName } from "./names.ts";
import type { PlaneRuntime } from "./plane.ts";

export function absentPlane(name: PlaneName): PlaneRuntime {
  return {
    name,
    apply: async () => ({ state: "in_force", changed: false }),
    drift: async () => [],
    probe: async () => [],
  };
}
