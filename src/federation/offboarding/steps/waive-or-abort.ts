// What a person decides of a run: a waiver of what is out of reach, or its end.
// Invariants: a waiver names its subject and its reason exactly, and counts once its stage is signed; an aborted run opens nothing.
import { DrawbridgeError, undefinedFor } from "../../../domain/errors.ts";
import { Word } from "../../../records/format/fields.ts";
import { CLOSING_ORDER } from "../../plane-order.ts";
import { acceptedState } from "../../reconcile/accept-head.ts";
import { timestamp } from "../../reconcile/context.ts";
import { partnerEntry, planeState } from "../../registry/partner.ts";
import { brokenByText } from "../private-record/content-rules.ts";
import { type OffboardingContext, requireOpen, withRun } from "../run/context.ts";
import { changeRun, counterpartyIn, waiverOf } from "../run/run-file.ts";
import { unwaivedIn, viewOf } from "./status.ts";

/** A word of the command line that comes into a signed statement after `prefix`. @throws DrawbridgeError `usage` */
export function wordOf(option: string, text: string, prefix = ""): string {
  const hint = "Write a code or a reference: letters, digits and . _ : -, without a person's contact.";
  if (text === "" || !Word.safeParse(`${prefix}${text}`).success)
    throw new DrawbridgeError("usage", `${option} ${JSON.stringify(text)} is not a valid code`, { hint });
  const [broken] = brokenByText(text);
  if (broken !== undefined) throw new DrawbridgeError("usage", `${option} ${broken.message}`, { hint });
  return text;
}

/** Counts once the stage is signed; `by`: the record's owner when absent. @throws DrawbridgeError `usage` */
export const waive = (
  context: OffboardingContext,
  subject: string,
  options: { readonly reason: string; readonly by?: string | undefined; readonly run?: string | undefined },
) =>
  withRun(context, options.run, async ({ run, trust: { parties } }) => {
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
    const unwaived = known.filter((one) => one.subject === subject && waiverOf(run, one) === undefined);
    const out_of_reach = unwaived.map((one) => one.reason);
    const waiver = { subject, out_of_reach, by, reason, at: timestamp(context.clock.now()) };
    const waived = out_of_reach.length === 0 ? run : changeRun(run, { waivers: [...run.waivers, waiver] });
    const left = stages.flatMap(({ progress }) => unwaivedIn(waived, progress?.proof?.out_of_reach));
    return { run: waived, left: [...new Set(left.map((one) => one.subject))] };
  });

/** Ends a run. What is closed stays closed: whatever has closed it, it is named; null where no registry can be read. */
export const abort = (context: OffboardingContext, options: { reason: string; run?: string | undefined }) =>
  withRun(context, options.run, async (context) => {
    const { run } = context;
    const reason = wordOf("--reason", options.reason);
    if (run.ended?.how !== "aborted") requireOpen(run);
    const at = timestamp(context.clock.now());
    const ended = run.ended === null ? changeRun(run, { ended: { how: "aborted", reason, at } }) : run;
    const accepted = await acceptedState(context).catch(undefinedFor());
    if (accepted === undefined) return { run: ended, closed: null, contained: null };
    const partner = partnerEntry(accepted.desired.registry, counterpartyIn(run))?.partner;
    const closed = CLOSING_ORDER.filter((plane) => !partner || planeState(partner, plane) === "closed");
    return { run: ended, closed, contained: partner?.contained === true };
  });
