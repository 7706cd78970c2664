// One change of the registry in one commit: the files, everything that they render, and a record of it.
// Invariants: all of it or nothing; the result is a valid registry, or every problem is reported and nothing changes; a
// head that is refused is never built on; nobody else commits meanwhile.
import { DrawbridgeError } from "../../domain/errors.ts";
import { planeOfPath, renderAll } from "../planes/render.ts";
import { assess } from "../reconcile/accept-head.ts";
import type { ReconcileContext } from "../reconcile/context.ts";
import { type RevisionFiles, readRevision, registryOf } from "../reconcile/desired-state.ts";
import { loadRegistry, type RegistryFile } from "../registry/load.ts";
import type { Registry } from "../registry/partner.ts";
import { blobIdOf, type Revision } from "../repository/repository.ts";
import { readHead } from "../state/plane-records.ts";
import { type BranchContext, commitToBranch, untilCommitted } from "./commit-to-branch.ts";

/** What the head is read and judged with. */
export type BaseContext = Pick<ReconcileContext, "repository" | "state" | "cache" | "allowedSignersFile">;

export interface CommitContext extends BaseContext, BranchContext {}

/** What a change is made to. */
export interface ChangeBase {
  readonly head: Revision;
  readonly files: RevisionFiles;
  readonly registry: Registry;
  /** The text of a file of the registry. */
  textOf(file: string): string;
}

export interface Proposal {
  /** Files of the registry by path, as they are to be. */
  readonly edits: ReadonlyMap<string, string>;
  /** Further files of the commit, such as a record. */
  readonly records?: ReadonlyMap<string, string>;
  readonly message: string;
}

/** A proposal worked out: what the commit would hold. */
export interface Change {
  readonly before: ChangeBase;
  readonly after: Registry;
  /** Every path that differs; null where a file goes. */
  readonly changes: ReadonlyMap<string, string | null>;
}

export interface ChangeOptions {
  /** Said in the branch's log. */
  readonly reason: string;
  /** Undefined: nothing is to be done on this base. May be called again on another one. */
  readonly propose: (base: ChangeBase) => Proposal | undefined;
  /** Checks what would be committed, and throws to have nothing happen. */
  readonly examine?: (change: Change) => void;
  /** Called with the commit before the branch moves to it, so that a kill in between can be understood. */
  readonly intend?: (revision: Revision, change: Change) => void;
}

export interface Committed {
  readonly revision: Revision;
  /** Undefined when nothing was to be done. */
  readonly change: Change | undefined;
  readonly base: ChangeBase;
}

/**
 * @throws DrawbridgeError `head_refused`, `repository_unusable`; RegistryError; and what
 *   `propose` and `examine` throw
 */
export function commitChange(context: CommitContext, options: ChangeOptions): Promise<Committed> {
  return untilCommitted(context, () => tryChange(context, options));
}

async function tryChange(context: CommitContext, options: ChangeOptions): Promise<Committed | undefined> {
  const base = await changeBase(context);
  const proposal = options.propose(base);
  if (proposal === undefined) return { revision: base.head, change: undefined, base };
  const change = await workOut(context, base, proposal.edits);
  options.examine?.(change);
  const changes = new Map([...change.changes, ...(proposal.records ?? [])]);
  const revision = await commitToBranch(context, {
    parents: [base.head],
    changes,
    message: proposal.message,
    reason: options.reason,
    intend: (revision) => options.intend?.(revision, change),
  });
  return revision === undefined ? undefined : { revision, change, base };
}

/** The branch's head, if it may be accepted. @throws DrawbridgeError `head_refused` */
export async function changeBase(context: BaseContext): Promise<ChangeBase> {
  const { repository, cache, state, allowedSignersFile } = context;
  const head = await repository.requireHead();
  const accepted = readHead(state).accepted?.revision;
  const found = await assess(head, {
    repository,
    cache,
    accepted,
    allowedSignersFile,
    allowNonFastForward: false,
  });
  if (!found.good) {
    throw new DrawbridgeError("head_refused", `${found.detail}; nothing was changed`, { hint: found.hint });
  }
  const files = await readRevision(repository, head, cache);
  const registry = registryOf(files, cache);
  // Known blobs are not read with a revision, so that what is edited is read here.
  const texts = await repository.blobs([...files.registry.values()].map(({ blobId }) => blobId));
  return {
    head,
    files,
    registry,
    textOf: (file) => texts.get(files.registry.get(file)?.blobId ?? "") ?? "",
  };
}

/**
 * What a change of files of the registry makes of everything rendered.
 * @throws RegistryError
 */
export async function workOut(
  { repository, cache }: Pick<CommitContext, "repository" | "cache">,
  before: ChangeBase,
  edits: ReadonlyMap<string, string>,
): Promise<Change> {
  const stored = [...before.files.registry].map(
    ([path, { blobId }]) => [path, { blobId, text: () => before.textOf(path) }] as const,
  );
  const registry = new Map<string, RegistryFile>([...stored, ...edits]);
  const after = loadRegistry(registry, { cache });
  const rendered = renderAll(after);
  const found = (await repository.list(before.head, ["rendered", "kubernetes"])).filter(
    ({ path }) => path.startsWith("rendered/") || planeOfPath(path) !== undefined,
  );
  const committed = new Map(found.map(({ path, blobId }) => [path, blobId]));
  const changes = new Map<string, string | null>();
  for (const [path, text] of edits) if (before.textOf(path) !== text) changes.set(path, text);
  for (const [path, text] of rendered) {
    if (blobIdOf(text, before.head) !== committed.get(path)) changes.set(path, text);
  }
  for (const path of committed.keys()) if (!rendered.has(path)) changes.set(path, null);
  return { before, after, changes };
}
