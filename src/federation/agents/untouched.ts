// Planes 1 to 3 before and after a change of one agent's identity, by the digest of all that is rendered for
// them. Invariant: a change that would touch them is refused before it is committed.
import { sha256Tagged } from "../../domain/digest.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import type { PlaneName } from "../planes/names.ts";
import type { Registry } from "../registry/partner.ts";
import { planeOfPath, renderAll } from "../render.ts";
import { refuse } from "./guards.ts";
import type { Seal } from "./proof.ts";

const UNTOUCHED = ["transport", "rooms", "border"] as const satisfies readonly PlaneName[];

export interface Untouched {
  readonly plane: (typeof UNTOUCHED)[number];
  readonly before: string;
  readonly after: string;
}

/** @throws DrawbridgeError `guard_refused` */
export function requireUntouched(before: Registry, after: Registry): readonly Untouched[] {
  const [old, now] = [digests(before), digests(after)];
  return UNTOUCHED.map((plane) => {
    if (old[plane] !== now[plane]) {
      throw refuse("planes_1_to_3_untouched", `the change would reach the ${plane} plane`);
    }
    return { plane, before: old[plane], after: now[plane] };
  });
}

function digests(registry: Registry): Record<(typeof UNTOUCHED)[number], string> {
  const files = [...renderAll(registry)].sort(([left], [right]) => (left < right ? -1 : 1));
  const of = (plane: PlaneName) =>
    sha256Tagged(JSON.stringify(files.filter(([path]) => planeOfPath(path) === plane)));
  return { transport: of("transport"), rooms: of("rooms"), border: of("border") };
}

export function untouchedItems(untouched: readonly Untouched[], seal: Seal): EvidenceItem[] {
  return untouched.map(({ plane, before, after }) =>
    seal({
      plane,
      probe: "render_unchanged",
      layer: "registry",
      verdict: "open",
      reason: "unchanged",
      references: [`before=${before}`, `after=${after}`],
    }),
  );
}
