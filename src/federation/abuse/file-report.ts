// Keeps an abuse report in the organisation's repository, one file a report.
// Invariants: the file's name is the report's digest, so that a report which comes twice is kept once; the commit
// names references and nothing else; a head that may not be taken up is never built on, because this machine's
// signature on top would let it in.
import { hexOfDigest } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { type BranchContext, commitToBranch, untilCommitted } from "../change/commit-to-branch.ts";
import { assessOrigin } from "../reconcile/accept-head.ts";
import type { Revision } from "../repository/repository.ts";
import type { AbuseReport } from "./report.ts";

export interface FiledReport {
  readonly path: string;
  readonly revision: Revision;
  /** False when it had been filed before. */
  readonly isNew: boolean;
}

function pathOf(report: AbuseReport, digest: string): string {
  const server = report.subject.server_name.replaceAll(/[^A-Za-z0-9.-]/g, "_");
  return `records/abuse/${server}-${hexOfDigest(digest).slice(0, 32)}.json`;
}

/** @throws DrawbridgeError `head_refused`, `config_invalid`, `repository_unusable` */
export async function fileReport(
  report: AbuseReport,
  digest: string,
  context: BranchContext,
): Promise<FiledReport> {
  return untilCommitted(context, () => tryFile(report, digest, context));
}

/** Undefined when the branch moved meanwhile. */
async function tryFile(
  report: AbuseReport,
  digest: string,
  context: BranchContext,
): Promise<FiledReport | undefined> {
  const { repository } = context;
  const path = pathOf(report, digest);
  const head = await repository.requireHead();
  if ((await repository.list(head, [path])).length > 0) return { path, revision: head, isNew: false };
  const refusal = await assessOrigin(head, context);
  if (refusal !== undefined) {
    throw new DrawbridgeError("head_refused", `${refusal.detail}; nothing was filed`, {
      hint: `${refusal.hint} Then file it again; drawbridge federation contain does not wait for that.`,
    });
  }
  const revision = await commitToBranch(context, {
    parent: head,
    changes: new Map([[path, `${JSON.stringify(report, null, 2)}\n`]]),
    message: `File an abuse report about ${report.subject.server_name}\n\n${report.category}, ${report.severity}, requested: ${report.requested_action}. Report ${digest}.\n`,
    reason: "drawbridge: report-abuse",
  });
  return revision === undefined ? undefined : { path, revision, isNew: true };
}
