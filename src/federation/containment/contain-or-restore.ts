// One act: a partner is contained, or restored, in one commit that holds the flag, the re-render and the record.
// Invariants: all of it or nothing; one record an act, however often it is tried, by however many.

import { DrawbridgeError } from "../../domain/errors.ts";
import { jsonText } from "../../domain/json.ts";
import { isSettled } from "../../records/conditions/evaluate.ts";
import { TOKEN_LIFE_S } from "../../rendered-files/issuer-clients.ts";
import { setAsideLines } from "../change/change-base.ts";
import { CONTAINMENT_ORDER, type PlaneName } from "../plane-order.ts";
import { scopeOf } from "../probes/from-inside.ts";
import { type Federation, timestamp } from "../reconcile/context.ts";
import { type Act, ContainmentRecord, containmentRecordPath } from "../registry/committed-records.ts";
import { findPartner, type PartnerEntry, planeState } from "../registry/partner.ts";
import { asking } from "../workflow/observe-plane.ts";
import { commitStep } from "../workflow/plan.ts";
import { CONTAIN, RESTORE } from "../workflow/procedures.ts";
import { appliedIn, OPEN_WITHIN_MS, observeStep, runStep, type StepResult } from "../workflow/run-step.ts";

export const PROCEDURES = { contain: CONTAIN, restore: RESTORE } as const;

/** `record` is undefined when the partner was contained, or restored, already; `revision` is then the branch's head. */
export type ActResult = Readonly<Awaited<ReturnType<typeof performAct>>>;

/** @throws DrawbridgeError `usage`, `head_refused`, `config_invalid`, `repository_unusable`; RegistryError */
export async function performAct(context: Federation, act: Act, name: string) {
  let record = undefined as ContainmentRecord | undefined;
  const [first] = PROCEDURES[act].steps;
  const { revision, base } = await commitStep(context, PROCEDURES[act], first, {
    ...{ partner: name, reason: `drawbridge: ${act}` },
    say: async (base, entry) => {
      record = undefined;
      // The flag on the base is in force by the next pass, unless the head is refused.
      const isWhole = base.isRendered && base.setAside === undefined;
      if (entry.partner.contained === (act === "contain") && isWhole) return undefined;
      const { serverName, azp, classification } = entry.partner;
      const at = timestamp(context.clock.now());
      record = ContainmentRecord.parse({
        ...{ schema: "svc.federation.containment.v1", act, server_name: serverName, azp, classification },
        ...{ git_revision: base.head, timestamp: at, planes: CONTAINMENT_ORDER },
      });
      const title = `${act === "contain" ? "Contain" : "Restore"} ${serverName}`;
      const what = `Partner ${entry.name}; planes ${CONTAINMENT_ORDER.join(", ")}. Rendered at ${base.head}.`;
      const message = [title, "", what, ...setAsideLines(base), ""].join("\n");
      return { records: new Map([[containmentRecordPath(record), jsonText(record)]]), message };
    },
  });
  const partner = findPartner(base.registry, name);
  const recordPath = record && containmentRecordPath(record);
  return { act, revision, record, setAside: base.setAside, partner, recordPath };
}

/** Tells `onPlane` of each plane. @throws DrawbridgeError `head_refused` when the act is not taken up, or taken back */
export async function applyPlanes(
  context: Federation,
  act: Act,
  { partner: { serverName } }: PartnerEntry,
  onPlane: (result: PlaneResult) => void = () => undefined,
): Promise<readonly PlaneResult[]> {
  const results: PlaneResult[] = [];
  const refusalHint = "Give the same command again: it works around that.";
  const stepOf = (plane: PlaneName) => {
    const refused = (results.find((one) => one.plane === "gateway")?.evidence ?? []).filter(
      ({ probe, verdict }) => probe === "callers_in_force" && verdict === "closed",
    );
    const asked = asking(context, ({ desired }) => {
      const { partner } = findPartner(desired.registry, serverName);
      if (partner.contained !== (act === "contain")) throw undone(act, serverName, desired.revision);
      const direction = planeState(partner, plane);
      const scope = scopeOf(context.parts, partner, desired, direction);
      return { plane, direction, conditions: "partner", scope, refusals: () => refused };
    });
    return {
      ...{ plane, partner: serverName, how: "apply" as const, ...asked },
      ...(act === "contain" ? { refusalHint } : { withinMs: OPEN_WITHIN_MS }),
    };
  };
  for (const { plane } of PROCEDURES[act].steps) {
    const step = stepOf(plane);
    let done = await runStep(context, step);
    if (done.verdict === "not_met" && done.applied?.outcome === "in_force") {
      // Recorded as in force, and a real part says otherwise: somebody has changed it since.
      done = await runStep(context, { ...step, how: "again" });
    }
    const result = resultOf(plane, done);
    results.push(result);
    onPlane(result);
    const { pass } = done;
    // The rooms are applied once more when the border has closed after them.
    for (const { plane: other } of pass?.planes ?? []) {
      const index = results.findIndex((one) => one.plane === other);
      if (pass === undefined || other === plane || index < 0) continue;
      const reached = { ...done, applied: appliedIn(pass, other) };
      results[index] = resultOf(other, await observeStep(context, stepOf(other), reached));
    }
  }
  return results;
}

/** Somebody else's commit has taken the act back: the planes are then brought to the opposite of what it wants. */
function undone(act: Act, serverName: string, revision: string): DrawbridgeError {
  const what = act === "contain" ? "is not contained any more" : "was contained again";
  const hint =
    "See git log for who committed that. Give the same command again if it is to be done all the same.";
  return new DrawbridgeError("head_refused", `${serverName} ${what}, at ${revision}`, { hint });
}

export type PlaneResult = Readonly<ReturnType<typeof resultOf>>;

function resultOf(plane: PlaneName, { pass, partner, applied, observed, conditions, verdict }: StepResult) {
  const record = pass?.planes.find((report) => report.plane === plane)?.record;
  const inForce = applied?.outcome === "in_force" ? (record?.inForce ?? null) : null;
  const open = conditions.find((one) => !isSettled(one));
  const item = observed.items.find(({ probe, reason }) => probe === open?.probe && reason !== null);
  return {
    /** `verdict`: of the plane as the act wants it, from inside; `outcome`: the reconciler's, if it came to it. */
    ...{ plane, verdict, outcome: applied?.outcome ?? null },
    /** Whether it is known to be so; a plane that nobody manages is not. */
    done: verdict === "met" || verdict === "not_applicable",
    reason: applied?.reason ?? item?.reason ?? open?.condition ?? null,
    /** When the first attempt at what the act wants ended; sorted by this, the planes are in the order of the act. */
    triedAt: applied?.firstAt ?? null,
    /** Since when it is wholly in force, whatever was observed since; else when the last attempt ended. */
    at: (inForce ?? applied)?.at ?? null,
    /** When a plane that had been in force was last so again, something having been put right; null when never. */
    repairedAt: inForce?.repairedAt ?? null,
    outOfReach: (applied?.outOfReach ?? []).filter((one) => one.partner === partner),
    ...{ conditions, evidence: observed.items },
  };
}

/** @param closed when the gateway plane was closed; undefined when it was not observed closed yet */
export function limitsOf(act: Act, serverName: string, closed?: number | "unmanaged") {
  if (act === "restore") {
    return [
      `Nobody of ${serverName} is put back into a room: who was in it is invited again, and comes back by accepting.`,
      "Rooms that were replaced or retired stay so: the invitations are to the rooms that replace them.",
      "History that it has replicated was never taken back, and what it learned before stays known.",
      "What was said while it was contained arrives with its next events in rooms that were kept, on both sides.",
    ];
  }
  const tokens =
    typeof closed === "number"
      ? `until ${new Date(closed + TOKEN_LIFE_S * 1_000).toISOString()} at the latest; the gateway refuses them already`
      : `for up to ${TOKEN_LIFE_S} s after the gateway plane is closed; the gateway refuses them from then on`;
  const ofGateway = [
    `Access tokens that its client holds stay valid ${tokens}, other services may not.`,
    "Calls that had begun at the gateway when it closes run to their end, streams too; only new calls are refused.",
  ];
  const unmanaged =
    "The gateway and the issuer are not managed here: its client gets tokens, and its calls and open streams go on, until whoever runs them closes them.";
  return [
    `What ${serverName} has replicated stays there: messages, files, membership and history of every shared room.`,
    ...(closed === "unmanaged" ? [unmanaged] : ofGateway),
    "The transport (plane 1) is not closed by this, so that bans and ACLs reach its server; removing the partner closes it.",
  ];
}
