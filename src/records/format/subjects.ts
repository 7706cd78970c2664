// The subjects that a statement must have, computed from what its predicate names.
// Invariant: in the predicate's order, each thing once; so a statement's subjects and its predicate cannot
// speak of different things, and tools that know only in-toto see every digest.
import type { CompletionPredicate } from "./completion-predicate.ts";
import type { StagePredicate } from "./stage-predicate.ts";
import type { Subject } from "./statement.ts";

const TAG = "sha256:";

function subject(name: string, digest: string): Subject {
  return { name, digest: { sha256: digest.slice(TAG.length) } };
}

/** `evidence/` and the first 16 digits of its digest. */
function evidenceSubject(digest: string): Subject {
  return subject(`evidence/${digest.slice(TAG.length, TAG.length + 16)}`, digest);
}

/** Each item once, in the order in which the conditions name them; then the render. */
export function stageSubjects({ exit, render }: Pick<StagePredicate, "exit" | "render">): Subject[] {
  const items = [...new Set(exit.flatMap(({ evidence }) => evidence))];
  return [...items.map(evidenceSubject), ...(render === null ? [] : [subject("render", render)])];
}

/** Every item, every plane's render, every stage statement. */
export function completionSubjects({
  evidence,
  revisions,
  stages,
}: Pick<CompletionPredicate, "evidence" | "revisions" | "stages">): Subject[] {
  return [
    ...evidence.map(evidenceSubject),
    ...revisions.map(({ organisation, plane, render }) => subject(`render/${organisation}/${plane}`, render)),
    ...stages.map(({ organisation, stage, statement }) =>
      subject(`stage/${organisation}/${stage}`, statement),
    ),
  ];
}

export function sameSubjects(left: readonly Subject[], right: readonly Subject[]): boolean {
  return (
    left.length === right.length &&
    left.every(
      ({ name, digest }, index) =>
        name === right[index]?.name && digest.sha256 === right[index]?.digest.sha256,
    )
  );
}
