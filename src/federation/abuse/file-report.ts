// Keeps an abuse report in the organisation's repository, one file a report.
// Invariants: the file's name is the report's digest, so that a report which comes twice is kept once; the commit
// names references and nothing else; the branch moves from the commit that was built on, or not at all.
import { DrawbridgeError } from "../../domain/errors.ts";
import { type CommitAuthor, writeCommit } from "../repository/commit.ts";
import type { Repository, Revision } from "../repository/repository.ts";
import { bringAlong, requireClean, workTreesOf } from "../repository/work-trees.ts";
import type { AbuseReport } from "./report.ts";

const ATTEMPTS_MAX = 20;

export interface FiledReport {
  readonly path: string;
  readonly revision: Revision;
  /** False when it had been filed before. */
  readonly isNew: boolean;
}

interface FileOptions {
  readonly repository: Repository;
  readonly author: CommitAuthor;
  readonly signingKeyFile: string | undefined;
  /** Milliseconds since the Unix epoch. */
  readonly at: number;
}

function pathOf(report: AbuseReport, digest: string): string {
  const server = report.subject.server_name.replaceAll(/[^A-Za-z0-9.-]/g, "_");
  return `records/abuse/${server}-${digest.slice("sha256:".length, "sha256:".length + 32)}.json`;
}

/** @throws DrawbridgeError `repository_unusable`, `work_tree_dirty` */
export async function fileReport(
  report: AbuseReport,
  digest: string,
  options: FileOptions,
): Promise<FiledReport> {
  const { repository } = options;
  const path = pathOf(report, digest);
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const head = await repository.requireHead();
    if ((await repository.list(head, [path])).length > 0) return { path, revision: head, isNew: false };
    const revision = await writeCommit(repository, {
      parents: [head],
      base: head,
      changes: new Map([[path, `${JSON.stringify(report, null, 2)}\n`]]),
      message: `File an abuse report about ${report.subject.server_name}\n\n${report.category}, ${report.severity}, requested: ${report.requested_action}. Report ${digest}.\n`,
      author: options.author,
      at: options.at,
      signingKeyFile: options.signingKeyFile,
    });
    const folders = await workTreesOf(repository);
    await requireClean(folders, [path]);
    if (!(await repository.advance(head, revision, "drawbridge: report-abuse"))) continue;
    for (const folder of folders) await bringAlong(folder, head, revision);
    return { path, revision, isNew: true };
  }
  throw new DrawbridgeError("repository_unusable", "the branch moved at every attempt; nothing was filed", {
    mend: "See who commits to it so often, and run the command again.",
  });
}
