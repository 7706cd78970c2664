// What each remaining stage would change, interrupt and restart, before anything is changed.
// Invariant: nothing is written to the repository, and nothing is asked of a real part.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PLANE_OF_STAGE, STAGE_NAMES, type StageName } from "../../../records/format/stages.ts";
import type { PlaneName } from "../../plane-order.ts";
import { PLANE_RENDERS } from "../../planes/render.ts";
import { currentState } from "../../reconcile/accept-head.ts";
import { findPartner } from "../../registry/find-partner.ts";
import type { PartnerEntry, Registry } from "../../registry/partner.ts";
import { git } from "../../repository/git.ts";
import type { OffboardingContext } from "../run/context.ts";
import { counterpartyOf } from "../run/run.ts";
import { withRun } from "./step.ts";
import { isLeftAlone, viewOf } from "./view.ts";

export interface PlannedStage {
  readonly stage: StageName;
  readonly plane: PlaneName | null;
  /** Rendered files that change, each with its difference (unified diff, without colour). */
  readonly files: readonly { readonly path: string; readonly diff: string }[];
  /** A program that is restarted; null where none is. */
  readonly restarts: "homeserver" | null;
  /** In words: what stops, and for whom. */
  readonly interrupts: string;
}

const INTERRUPTS: Readonly<Record<StageName, string>> = {
  a2a_stop: "Calls of the counterparty's client are refused at once; streams that are open run to their end.",
  a2a_discovery:
    "Questions to the counterparty's agents are refused at once; nobody else's card or question is touched.",
  room: "The counterparty's people leave every governed room; rooms may be replaced, as its entry says.",
  policy_border: "What the counterparty sends is dropped from the next event on; the policy is read live.",
  transport: "The homeserver restarts: everybody waits until it answers again, and nothing is lost.",
  data_duties: "Nothing is interrupted; what is purged is gone for good.",
};

/** What is left of a run, in the order in which it will be done. */
export function plan(
  context: OffboardingContext,
  named?: string,
): Promise<{ readonly run: string; readonly stages: readonly PlannedStage[] }> {
  return withRun(context, named, async (run, { parties }) => {
    const view = viewOf(run, parties);
    const { desired } = await currentState(context.federation);
    let { registry } = desired;
    const stages: PlannedStage[] = [];
    for (const stage of STAGE_NAMES) {
      const plane = PLANE_OF_STAGE[stage];
      const isLeft = isLeftAlone(run, stage);
      const after = plane === null || isLeft ? registry : closedIn(registry, counterpartyOf(run), plane);
      const state = view.stages.find((one) => one.stage === stage)?.own.state;
      if (run.ended === null && (state === "pending" || state === "closing")) {
        stages.push({
          stage,
          plane,
          files: await differences(registry, after),
          restarts: stage === "transport" && !isLeft ? "homeserver" : null,
          interrupts: isLeft ? `Left alone by a ${run.kind} removal.` : INTERRUPTS[stage],
        });
      }
      registry = after;
    }
    return { run: run.run, stages };
  });
}

function closedIn(registry: Registry, server: string, plane: PlaneName): Registry {
  const entry = findPartner(registry, server);
  const { partner } = entry;
  const closed: PartnerEntry = {
    ...entry,
    partner: { ...partner, planes: { ...partner.planes, [plane]: "closed" } },
  };
  return { ...registry, partners: registry.partners.map((one) => (one === entry ? closed : one)) };
}

async function differences(before: Registry, after: Registry): Promise<PlannedStage["files"]> {
  if (before === after) return [];
  const files: { path: string; diff: string }[] = [];
  for (const render of Object.values(PLANE_RENDERS)) {
    const old = render.render(before);
    for (const [path, text] of render.render(after)) {
      const was = old.get(path) ?? "";
      if (was !== text) files.push({ path: `rendered/${path}`, diff: await unifiedDiff(was, text) });
    }
  }
  return files;
}

/** The changed lines with their surroundings, without the names of files. */
async function unifiedDiff(before: string, after: string): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "drawbridge-plan-"));
  try {
    writeFileSync(join(folder, "before"), before, { mode: 0o600 });
    writeFileSync(join(folder, "after"), after, { mode: 0o600 });
    const args = ["diff", "--no-index", "--no-color", "--unified=2", "before", "after"];
    const { stdout } = await git(args, { cwd: folder });
    const text = stdout.toString("utf8");
    return text.slice(Math.max(text.indexOf("\n@@") + 1, 0));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
