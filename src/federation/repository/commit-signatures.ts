// Which commits a head brings, and which of them no allowed key has signed (git's SSH signatures).
// Invariants: every commit between what was accepted and the head counts, those that a merge brings included, unless
// the policy says otherwise. Git compares a key's dates with the commit's own, so a commit that is dated before its parents
// (by a key that has expired) or in the future is refused.
import { readFileSync } from "node:fs";
import { LRUCache } from "lru-cache";
import { sha256Tagged } from "../../domain/digest.ts";
import { CLOCK_SKEW_MS } from "../../records/format/fields.ts";
import { GitBounds, gitLine } from "./git.ts";
import { isDatedInFuture, parseRevision, type Repository, type Revision } from "./repository.ts";

export interface SigningPolicy {
  readonly allowedSignersFile: string;
  /** `first_parent`: whoever signs a merge answers for the commits that it brings. */
  readonly signedCommits: "every" | "first_parent";
  readonly trustedBase: Revision | undefined;
}

/** Git starts ssh-keygen twice for each signature: whoever pushes many forged ones is to keep nobody waiting. */
const COMMITS_PER_CALL = 20;
const VERIFIED_KEPT = 100_000;
/** Some 240,000 commits. */
const LISTING_BYTES_MAX = 1 << 25;

/** Commits with an allowed signature, by the digest of the list of signers: a signature once good stays so. */
const verified = new LRUCache<string, true>({ max: VERIFIED_KEPT });

export interface RefusedCommit {
  readonly revision: Revision;
  /** A commit's date counts before its signature, which is judged by the date. */
  readonly why: "backdated" | "postdated" | "unsigned";
}

/** Commits for which a head is refused, as far as it takes to know; without an accepted one, of the whole history. @param nowMs Unix epoch */
export async function refusedCommits(
  repository: Repository,
  head: Revision,
  policy: SigningPolicy,
  accepted: Revision | undefined,
  nowMs: number,
): Promise<readonly RefusedCommit[]> {
  const brought = await broughtBy(repository, head, policy, accepted, nowMs);
  const unsigned = new Set(await unsignedAmong(repository, [...brought.keys()], policy, 1));
  return [...brought].flatMap(([revision, wrongDate]) => {
    const why = wrongDate ?? (unsigned.has(revision) ? "unsigned" : undefined);
    return why === undefined ? [] : [{ revision, why }];
  });
}

/** The commits that no allowed key has signed. @param enough how many end the search @throws `repository_unusable` */
export async function unsignedAmong(
  repository: Repository,
  revisions: readonly Revision[],
  { allowedSignersFile }: SigningPolicy,
  enough = Number.POSITIVE_INFINITY,
): Promise<readonly Revision[]> {
  const signers = digestOf(allowedSignersFile);
  if (signers === undefined) return revisions;
  const unsigned: Revision[] = [];
  const unknown = revisions.filter((revision) => !verified.has(`${signers} ${revision}`));
  for (let from = 0; from < unknown.length && unsigned.length < enough; from += COMMITS_PER_CALL) {
    const batch = unknown.slice(from, from + COMMITS_PER_CALL);
    const input = `${batch.join("\n")}\n`;
    const signed = ["log", "--no-walk=unsorted", "--no-show-signature", "--format=%ct %H %G?", "--stdin"];
    const settings = [`gpg.ssh.allowedSignersFile=${allowedSignersFile}`];
    const judged = new Set((await gitLine(signed, repository.call({ input, settings }))).split("\n"));
    const dates = ["rev-list", "--no-walk=unsorted", "--timestamp", "--stdin"];
    const dated = await gitLine(dates, repository.call({ input }));
    // `G` alone says: good, and by a key that the list has for git at the commit's date. Of several dates (also one that comes of
    // the encoding that a commit names) git judges a key by the first, and prints the last as the commit's.
    const allowed = dated.split("\n").filter((line) => judged.has(`${line} G`));
    const good = new Set(allowed.flatMap((line) => line.split(" ").slice(1)));
    for (const revision of batch) {
      if (good.has(revision)) verified.set(`${signers} ${revision}`, true);
      else unsigned.push(revision);
    }
  }
  return unsigned;
}

type WrongDate = Exclude<RefusedCommit["why"], "unsigned">;

async function broughtBy(...[repository, head, policy, accepted, nowMs]: Parameters<typeof refusedCommits>) {
  const { signedCommits, trustedBase } = policy;
  const alone = new Map<Revision, WrongDate | undefined>(head === trustedBase ? [] : [[head, undefined]]);
  // The head that was accepted brings nothing besides itself.
  if (head === accepted) return alone;
  const trusted = [accepted, trustedBase].flatMap((one) => (one === undefined ? [] : [`^${one}`]));
  // A trusted commit that the repository lacks excludes nothing, so that more is examined.
  const order = ["rev-list", "--topo-order", "--ignore-missing", "--boundary"];
  const format = ["--no-commit-header", "--format=%m %H %T %ct %P"];
  const call = repository.call({ bytesMax: LISTING_BYTES_MAX });
  const list = async (...along: readonly string[]) =>
    commitsIn(await gitLine([...order, ...format, ...along, head, ...trusted], call));
  const commits = await list().catch(async (error: unknown) => {
    if (!(error instanceof GitBounds)) throw error;
    // A merge that sets aside more than can be listed is judged without that, if it comes right after what was accepted.
    const mainline = await list("--first-parent");
    const isLeftOut = [...mainline.values()].every(
      (one) => !one.isNew || one.parents.length <= 1 || takesNothing(one, mainline),
    );
    if (accepted !== undefined && isLeftOut && mainline.get(accepted)?.isNew === false) return mainline;
    throw error;
  });
  if (commits.get(head)?.isNew !== true) return alone;

  const base = youngestTrusted(commits, nowMs);
  const brought = new Map<Revision, WrongDate | undefined>();
  const waiting: string[] = [head];
  for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
    const commit = commits.get(id);
    const revision = parseRevision(id);
    if (commit?.isNew !== true || revision === undefined || brought.has(revision)) continue;
    const takesAll = signedCommits === "every" && !takesNothing(commit, commits);
    const examined = takesAll ? commit.parents : commit.parents.slice(0, 1);
    // A parent that nobody examines has whatever date its author liked; what was trusted below it counts all the same.
    const dates = examined
      .map((parent) => commits.get(parent)?.at ?? 0)
      .filter((at) => !isDatedInFuture(at, nowMs));
    const isBackdated = commit.at < Math.max(base.get(id) ?? 0, ...dates) - CLOCK_SKEW_MS / 1_000;
    const isPostdated = isDatedInFuture(commit.at, nowMs);
    brought.set(revision, isBackdated ? "backdated" : isPostdated ? "postdated" : undefined);
    waiting.push(...examined);
  }
  return brought;
}

type Commits = ReturnType<typeof commitsIn>;

function commitsIn(listed: string) {
  const commits = listed.split("\n").map((line) => {
    const [mark, id = "", tree = "", at, ...named] = line.split(" ");
    const parents = named.filter((parent) => parent !== "");
    return [id, { tree, at: Number(at), parents, isNew: mark !== "-" }] as const;
  });
  return new Map(commits);
}

/** A merge that keeps its first parent's tree (git merge -s ours) sets aside what the others hold. */
const takesNothing = ({ tree, parents }: { tree: string; parents: string[] }, commits: Commits): boolean =>
  commits.get(parents[0] ?? "")?.tree === tree;

/** The date of the youngest trusted commit that each of the others descends from; children stand before parents. */
function youngestTrusted(commits: Commits, nowMs: number): ReadonlyMap<string, number> {
  const youngest = new Map<string, number>();
  for (const [id, { isNew, at }] of commits) {
    if (!isNew && !isDatedInFuture(at, nowMs)) youngest.set(id, at);
  }
  for (const [id, { isNew, parents }] of [...commits].reverse()) {
    if (isNew) youngest.set(id, Math.max(0, ...parents.map((parent) => youngest.get(parent) ?? 0)));
  }
  return youngest;
}

function digestOf(allowedSignersFile: string): string | undefined {
  try {
    return sha256Tagged(readFileSync(allowedSignersFile));
  } catch {
    return undefined;
  }
}

/** Whether the list of allowed signers can be read; without it no commit counts as signed. */
export const canReadSigners = ({ allowedSignersFile }: SigningPolicy): boolean =>
  digestOf(allowedSignersFile) !== undefined;
