// The end of a re-admission: one record, committed, with the digests of all that was seen.
import { commitChange } from "../change/commit-change.ts";
import { timestamp } from "../reconcile/context.ts";
import { findPartner } from "../registry/find-partner.ts";
import { parseRevision } from "../repository/repository.ts";
import type { ReadmissionContext } from "./open.ts";
import { type Readmission, saveReadmission } from "./readmission.ts";
import { type ReadmissionRecord, recordPath, renderRecord } from "./record.ts";

/** Records the end, with the digests of all that was seen. */
export async function complete(context: ReadmissionContext, found: Readmission): Promise<Readmission> {
  if (found.done) return found;
  const { state, clock, repository } = context;
  const pending = parseRevision(found.completion?.revision);
  const isThere =
    pending !== undefined && (await repository.isAncestor(pending, await repository.requireHead()));
  let readmission = found;
  if (!isThere) {
    const at = timestamp(clock.now());
    await commitChange(context, {
      reason: "drawbridge: readmission",
      propose: (base) => {
        const { azp, serverName } = findPartner(base.registry, found.partner).partner;
        const record = recordOfEnd(found, { azp, head: base.head, at });
        return {
          edits: new Map(),
          records: new Map([[recordPath(record), renderRecord(record)]]),
          message: `Complete the re-admission of ${serverName}\n\n${tellSeen(found)}\n\nReadmission: ${found.id}\n`,
        };
      },
      intend: (revision) => {
        readmission = saveReadmission(state, { ...found, completion: { revision, at } });
      },
    });
  }
  return saveReadmission(state, { ...readmission, done: true });
}

function recordOfEnd(
  found: Readmission,
  { azp, head, at }: { readonly azp: string; readonly head: string; readonly at: string },
): ReadmissionRecord {
  const { id, partner, gate, retired, rooms, touched, stages } = found;
  return {
    schema: "svc.federation.readmission.v1",
    act: "completed",
    readmission: id,
    server_name: partner,
    azp,
    gate,
    git_revision: head,
    timestamp: at,
    retired,
    rooms,
    rooms_replaced: (touched ?? []).filter(({ state }) => state === "replaced").length,
    planes: stages.map(({ plane, revision, evidence, notApplicable }) => ({
      ...{ plane, revision: revision ?? head, evidence, not_applicable: notApplicable },
    })),
  };
}

/** What was seen, and of what there was nothing to see. */
function tellSeen({ stages }: Readmission): string {
  const left = stages.flatMap(({ plane, notApplicable }) =>
    notApplicable.map((name) => `  ${plane} ${name}`),
  );
  return left.length === 0
    ? "All five planes were seen to be open."
    : `All five planes are in force, and were seen to be open but for what did not apply:\n${left.join("\n")}`;
}
