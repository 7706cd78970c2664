// Waiving what is out of reach, and ending a run without completing it.
import { DrawbridgeError } from "../../../domain/errors.ts";
import { Word } from "../../../records/format/fields.ts";
import { PLANE_OF_STAGE } from "../../../records/format/stages.ts";
import type { PlaneName } from "../../plane-order.ts";
import { timestamp } from "../../reconcile/context.ts";
import { type OffboardingContext, requireOpen, withRun } from "../run/context.ts";
import { changeRun, type Run } from "../run/run-file.ts";
import { unwaivedIn, viewOf } from "./status.ts";

/** A word of the command line that comes into a signed statement after `prefix`. @throws DrawbridgeError `usage` */
export function wordOf(option: string, text: string, prefix = ""): string {
  if (text !== "" && Word.safeParse(`${prefix}${text}`).success) return text;
  throw new DrawbridgeError("usage", `${option} ${JSON.stringify(text)} is not a valid code`, {
    hint: "Write a code or a reference: letters, digits and . _ : -, without a person's contact.",
  });
}

/**
 * The waiver counts once the stage is signed.
 * @param by role or staff number; the record's owner when absent
 * @throws DrawbridgeError `usage` when nothing out of reach is called so
 */
export function waive(
  context: OffboardingContext,
  subject: string,
  options: { readonly reason: string; readonly by?: string | undefined; readonly run?: string | undefined },
): Promise<{ readonly run: Run; readonly left: readonly string[] }> {
  return withRun(context, options.run, async ({ run, trust: { parties } }) => {
    requireOpen(run);
    const reason = wordOf("--reason", options.reason);
    const by = options.by === undefined ? context.facts(run).owner : wordOf("--by", options.by);
    const { stages } = viewOf(run, parties);
    const open = stages.filter(({ own }) => own.state === "proving" || own.state === "proved");
    const known = open.flatMap(({ progress }) => progress?.proof?.out_of_reach ?? []);
    const names = [...new Set(known.map((one) => one.subject))];
    if (!names.includes(subject)) {
      const nothing = "Nothing is out of reach in a stage that is not signed yet";
      const hint = names.length === 0 ? nothing : `Name one of ${names.join(", ")}`;
      throw new DrawbridgeError("usage", `nothing out of reach is called ${JSON.stringify(subject)}`, {
        hint: `${hint}; nothing was changed.`,
      });
    }
    const waiver = { subject, by, reason, at: timestamp(context.clock.now()) };
    const isWaived = run.waivers.some((one) => one.subject === subject);
    const waived = isWaived ? run : changeRun(run, { waivers: [...run.waivers, waiver] });
    const left = stages.flatMap(({ progress }) => unwaivedIn(waived, progress?.proof?.out_of_reach));
    return { run: waived, left: [...new Set(left.map((one) => one.subject))] };
  });
}

/** Ends a run. What is closed stays closed. @returns the planes that this run has closed */
export function abort(
  context: OffboardingContext,
  options: { readonly reason: string; readonly run?: string | undefined },
): Promise<{ readonly run: Run; readonly closed: readonly PlaneName[]; readonly contained: boolean }> {
  return withRun(context, options.run, async ({ run, trust: { parties } }) => {
    const reason = wordOf("--reason", options.reason);
    if (run.ended?.how !== "aborted") requireOpen(run);
    const view = viewOf(run, parties);
    const closed = view.stages.flatMap(({ stage, progress }) => {
      const plane = PLANE_OF_STAGE[stage];
      return plane !== null && progress?.commit != null ? [plane] : [];
    });
    const at = timestamp(context.clock.now());
    const ended = run.ended === null ? changeRun(run, { ended: { how: "aborted", reason, at } }) : run;
    return { run: ended, closed, contained: run.contained_at !== null };
  });
}
