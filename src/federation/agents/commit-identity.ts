// What rotating, pinning and withdrawing an identity share: one commit, the planes that it changes brought into force, and
// the result. Invariant: a change that would reach planes 1 to 3 is refused before it is committed.

import { join } from "node:path";
import { sha256Tagged } from "../../domain/digest.ts";
import { isSettled } from "../../records/conditions/evaluate.ts";
import { type EvidenceItem, operatorItem } from "../../records/format/evidence-item.ts";
import type { Part, Scope } from "../../records/format/fields.ts";
import { targetFingerprint } from "../../rendered-files/agents-file.ts";
import type { ChangeBase } from "../change/commit-base.ts";
import { type Committed, commitChange, type Proposal } from "../change/commit-change.ts";
import type { PlaneName } from "../plane-order.ts";
import { planeOfPath, renderAll } from "../planes/render.ts";
import { type Federation, timestamp } from "../reconcile/context.ts";
import type { Registry } from "../registry/partner.ts";
import { DeclaredEvidence, type Seal } from "../workflow/declared-evidence.ts";
import { PIN } from "../workflow/procedure.ts";
import { judgePlane, type Reached, runStep } from "../workflow/run-step.ts";
import type { JudgedCondition } from "../workflow/step-verdict.ts";
import { cardIdentityOf, refuse } from "./identity-rules.ts";
import {
  type AgentParts,
  type IdentityProofInput,
  partsOf,
  proveByBridge,
  proveIdentities,
} from "./proof.ts";

export type IdentityResult = Readonly<Awaited<ReturnType<typeof proveIdentity>>>;

interface CommittedIdentity extends Committed {
  readonly untouched: Untouched;
}

export async function commitIdentity(
  context: Federation,
  reason: string,
  propose: (base: ChangeBase) => Promise<Proposal | undefined>,
  intend?: (revision: string) => void,
): Promise<CommittedIdentity> {
  let untouched: Untouched = [];
  const committed = await commitChange(context, {
    reason,
    propose,
    examine: ({ before, after }) => {
      untouched = requireUntouched(before.registry, after);
    },
    intend,
  });
  const { change, base } = committed;
  // What is committed already is compared with itself, so that its digests are reported as well.
  if (change === undefined) untouched = requireUntouched(base.registry, base.registry);
  return { ...committed, untouched };
}

interface ChangedIdentity {
  readonly act: "rotate" | "pin" | "withdraw" | "add" | "remove";
  readonly agent: string;
  readonly partner: string;
  readonly keyId: string | null;
  readonly oldKeyId: string | null;
  readonly procedure: typeof PIN;
  /** The programs that can confirm it: our bridge, where one carries the agent. */
  readonly parts: readonly Part[];
  readonly fingerprint?: string;
  /** What was observed of the agent itself, once a plane is in force that its conditions are about. */
  readonly observe: (seal: Seal, plane: PlaneName, reached: Reached) => Promise<readonly EvidenceItem[]>;
}

/** Brings the managed planes of a procedure into force, and evaluates each. @throws DrawbridgeError `head_refused` */
export async function proveIdentity(
  context: Federation,
  { change, revision, untouched }: CommittedIdentity,
  { procedure, parts, fingerprint, observe, ...about }: ChangedIdentity,
) {
  const { agent, partner } = about;
  const { clock } = context;
  const items = untouched.map(({ plane, before, after }) =>
    operatorItem(clock.now(), {
      ...{ plane, partner, subject: agent, probe: "render_unchanged", layer: "registry" },
      ...{ verdict: "open", reason: "unchanged", references: [`before=${before}`, `after=${after}`] },
    }),
  );
  const conditions: JudgedCondition[] = [];
  const scope: Scope = {
    ...{ parts: [...parts], client: partner, applicants: [], agents: [], pins: [agent] },
    ...{ rooms: null, policy: null, started_at: null },
  };
  const fingerprints = new Map(fingerprint === undefined ? [] : [[agent, fingerprint]]);
  for (const { plane, direction, conditions: shown } of procedure.steps) {
    if (context.planes[plane].unmanaged) continue;
    const declared = new DeclaredEvidence(partner, plane, clock);
    const seal: Seal = (finding) => declared.item({ subject: agent, ...finding });
    const step = await runStep(context, {
      ...{ plane, partner, how: "apply" },
      observe: async (reached) => {
        const inForce = declared.reconciled(reached.applied, direction, reached.desired);
        return { items: [...inForce, ...(shown === "agent" ? await observe(seal, plane, reached) : [])] };
      },
      evaluate: (reached, seen) =>
        judgePlane(reached, seen, { plane, direction, conditions: shown, scope, fingerprints }),
    });
    items.push(...step.seen.items);
    for (const one of step.conditions) {
      conditions.push(one.condition === "in_force" ? { ...one, condition: `${plane}_in_force` } : one);
    }
  }
  return {
    ...{ ...about, revision, committed: change !== undefined, untouched, items, conditions },
    complete: conditions.every(isSettled),
  };
}

/** A target pinned to a key: what is served verifies by it, and the bridge has verified it. */
export async function provePin(
  context: Federation,
  committed: CommittedIdentity,
  parts: AgentParts,
  pinned: Omit<IdentityProofInput, "seal"> & { readonly cardUrl: string } & Pick<
      ChangedIdentity,
      "act" | "agent" | "partner"
    >,
): Promise<IdentityResult> {
  const { act, agent, partner, cardUrl, old, fresh } = pinned;
  const fingerprint = targetFingerprint(agent, { cardUrl, cardIdentity: cardIdentityOf(fresh) });
  return proveIdentity(context, committed, {
    ...{ act, agent, partner, keyId: fresh.keyId, oldKeyId: old?.keyId ?? null },
    ...{ procedure: PIN, parts: partsOf(parts), fingerprint },
    observe: async (seal) => [
      ...(await proveIdentities({ seal, ...pinned })),
      ...(await proveByBridge(parts, { agent, seal, wanted: "verified" }, { fingerprint })),
    ],
  });
}

export function keepEvidence({ state, clock }: Federation, result: IdentityResult): string {
  const at = timestamp(clock.now()).replaceAll(/[-:]/g, "");
  const { act, agent, partner, revision, items, conditions, complete } = result;
  const name = `agents/evidence/${at}-${act}-${agent}.json`;
  state.write(name, { version: 1, act, agent, partner, revision, complete, conditions, items });
  return join(state.path, name);
}

const UNTOUCHED = ["transport", "rooms", "border"] as const satisfies readonly PlaneName[];
type Untouched = ReturnType<typeof requireUntouched>;

/** @throws DrawbridgeError `guard_refused` */
function requireUntouched(old: Registry, now: Registry) {
  const [before, after] = [renderAll(old), renderAll(now)];
  return UNTOUCHED.map((plane) => {
    const found = { plane, before: digestOf(before, plane), after: digestOf(after, plane) };
    if (found.before === found.after) return found;
    throw refuse("planes_1_to_3_untouched", `the change would reach the ${plane} plane`);
  });
}

function digestOf(rendered: ReadonlyMap<string, string>, plane: PlaneName): string {
  const files = [...rendered].filter(([path]) => planeOfPath(path) === plane);
  return sha256Tagged(JSON.stringify(files.sort(([left], [right]) => (left < right ? -1 : 1))));
}
