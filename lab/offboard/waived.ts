// What no operator could reach, and somebody answers for, as the stages of a record have it. Pure.
import { z } from "zod";
import { OutOfReachEntry } from "../../src/records/format/predicate-fields.ts";
import type { CompleteOrganisation } from "../organisations.ts";

export interface Waived {
  readonly organisation: CompleteOrganisation;
  readonly subject: string;
  /** Why it was out of reach. */
  readonly found: string;
  /** The role that answers for it, and why it may. */
  readonly by: string;
  readonly reason: string;
}

/** Of a stage's predicate, what is read here. */
export const OutOfReach = z.object({ outOfReach: z.array(OutOfReachEntry) });

/** Each thing once for each organisation, however many stages name it. */
export function waivedIn(
  stages: readonly (z.output<typeof OutOfReach> & { readonly organisation: CompleteOrganisation })[],
): readonly Waived[] {
  const found = new Map<string, Waived>();
  for (const { organisation, outOfReach } of stages) {
    for (const { subject, reason, waivedBy, waiver } of outOfReach) {
      if (waivedBy === null) continue;
      const one: Waived = {
        organisation,
        subject,
        found: reason,
        by: waivedBy,
        reason: waiver ?? "no reason",
      };
      found.set(JSON.stringify(one), one);
    }
  }
  return [...found.values()];
}
