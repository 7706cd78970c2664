// Passing statements on as files, and taking in what came back.
import { TRIGGER_WORD } from "../../../records/format/evidence-item.ts";
import { CLOCK_SKEW_MS } from "../../../records/format/fields.ts";
import {
  exportExchange,
  type HeldStatements,
  importExchange,
  isCompletion,
  makerOf,
  placeOfStatement,
  stagesIn,
  statementIn,
} from "../../../records/sign/export-and-import.ts";
import { type Problem, refuseUnlessClean } from "../../../records/verify/reasons.ts";
import { turnProblems } from "../../../records/verify/verify-stages.ts";
import { acceptedState } from "../../reconcile/accept-head.ts";
import { timestamp } from "../../reconcile/context.ts";
import { clientsAt, partnerEntry, type Registry } from "../../registry/partner.ts";
import { blockedBy, type OffboardingContext, removalOf, requireOpen, withRun } from "../run/context.ts";
import { counterpartyIn, type Run, readStatements, signingKeyOf, writeStatements } from "../run/run-file.ts";
import { finishRecord } from "./sign-and-complete.ts";

const REFUSED = "the file is refused, and nothing of it was taken in";

/** All that this organisation has signed, for the other one. @throws OffboardingBlocked when that is nothing yet */
export const exportStatements = (context: OffboardingContext, named?: string) =>
  withRun(context, named, async (context) => {
    const { run, trust } = context;
    const removal = removalOf(context);
    const { envelopes, evidence } = readStatements(run);
    const signed = envelopes.filter((one) => signingKeyOf(one, run.self, trust.parties) !== undefined);
    if (signed.length === 0) {
      throw blockedBy("there is nothing to pass on", {
        ...{ condition: "signed", probe: "export", found: "this organisation has signed nothing yet" },
        hint: "Run drawbridge offboarding next, then drawbridge offboarding sign.",
      });
    }
    return { run, text: exportExchange(removal, { envelopes: signed, evidence }), statements: signed.length };
  });

/** Whole or not at all. @throws RecordRefused; OffboardingBlocked when the two runs are about different things */
export const importStatements = (context: OffboardingContext, bytes: Uint8Array, named?: string) =>
  withRun(context, named, async (context) => {
    const { run } = context;
    if (run.ended?.how === "aborted") requireOpen(run);
    const imported = importExchange(bytes, removalOf(context), readStatements(run));
    requireSameTrigger(run, imported.held);
    requireWithinRun(run, imported.held, context.clock.now());
    requireInTurn(run, imported.held);
    const { desired } = await acceptedState(context);
    requireOwnClients(run, desired.registry, imported.held);
    writeStatements(run, imported.held, timestamp(context.clock.now()));
    return { run, added: imported.added, recordFile: finishRecord(context) };
  });

/** Refuses what was observed in the future, or before the run was opened: that shows nothing of this removal. */
function requireWithinRun(run: Run, { envelopes }: HeldStatements, nowMs: number): void {
  const other = counterpartyIn(run);
  const from = run.self === run.remover ? Date.parse(run.opened_at) - CLOCK_SKEW_MS : 0;
  const problems = envelopes.flatMap((envelope): Problem[] => {
    const statement = statementIn(envelope);
    if (statement === undefined || makerOf(statement) !== other) return [];
    const at = isCompletion(statement) ? statement.predicate.completed_at : statement.predicate.closed_at;
    const problem = { reason: "times_out_of_order", where: placeOfStatement(statement) } as const;
    if (Date.parse(at) < from) return [{ ...problem, detail: "closed before the run was opened" }];
    return Date.parse(at) > nowMs + CLOCK_SKEW_MS ? [{ ...problem, detail: "closed in the future" }] : [];
  });
  refuseUnlessClean(REFUSED, problems);
}

/** Refuses a stage that was closed before this organisation's stage before it: with it, no completion would ever hold. */
function requireInTurn(run: Run, { envelopes }: HeldStatements): void {
  const stages = stagesIn(envelopes);
  const theirs = [...stages.values()].filter(({ predicate }) => predicate.organisation !== run.self);
  const problems = theirs.flatMap((stage) => turnProblems(stage, run.self, stages, true));
  refuseUnlessClean(REFUSED, problems);
}

/** The completion, which both sign, names one trigger: a difference is reported at the first stage, not at the last. */
function requireSameTrigger(run: Run, { envelopes }: HeldStatements): void {
  const other = counterpartyIn(run);
  const said = [...stagesIn(envelopes).values()]
    .filter(({ predicate }) => predicate.organisation === other)
    .flatMap(({ predicate }) => predicate.attested)
    .find((word) => word.startsWith(TRIGGER_WORD));
  if (said === undefined || said === `${TRIGGER_WORD}${run.trigger}`) return;
  throw blockedBy(REFUSED, {
    ...{ condition: "same_trigger", probe: "import" },
    found: `${other} has opened its run as ${said.slice(TRIGGER_WORD.length)}, this organisation as ${run.trigger}`,
    hint: "Agree on one trigger; whoever has the other one aborts its run and opens it again.",
  });
}

/** Refuses a scope without the client by which this organisation is let in there: a client is closed for all agents. */
function requireOwnClients(run: Run, registry: Registry, { envelopes }: HeldStatements): void {
  const other = counterpartyIn(run);
  const used = clientsAt(partnerEntry(registry, other)?.partner);
  for (const { predicate } of stagesIn(envelopes).values()) {
    const { parts, client, applicants } = predicate.scope;
    if (predicate.organisation !== other || !parts.includes("gateway")) continue;
    const left = used.find((one) => one !== client && !applicants.includes(one));
    if (left === undefined) continue;
    throw blockedBy(REFUSED, {
      ...{ condition: "own_client", probe: "import" },
      found: `${other} covers the client ${client}; this organisation's bridge asks there as ${JSON.stringify(left)}`,
      hint: `Correct credentials.clientId in its entry here if that is out of date, and import again. Else ${other} has closed another client: end the run on both sides, and open it again once its entry names yours.`,
    });
  }
}
