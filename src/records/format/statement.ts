// An in-toto Statement, version 1: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md
// Invariants: every subject has a SHA-256 and a name of its own; the predicate is never empty; what is
// signed is the canonical text (RFC 8785), so that one statement has one digest.
import { z } from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import type { Json } from "../../domain/json.ts";

export const STATEMENT_TYPE = "https://in-toto.io/Statement/v1";
export const STATEMENT_PAYLOAD_TYPE = "application/vnd.in-toto+json";

const Sha256Hex = z.string().regex(/^[0-9a-f]{64}$/);

export const Subject = z.strictObject({
  name: z.string().min(1).max(512),
  digest: z.strictObject({ sha256: Sha256Hex }),
});
export type Subject = z.output<typeof Subject>;

export const statementOf = <Predicate extends z.ZodType>(predicateType: string, predicate: Predicate) =>
  z.strictObject({
    _type: z.literal(STATEMENT_TYPE),
    subject: z
      .array(Subject)
      .min(1)
      .refine((subjects) => new Set(subjects.map(({ name }) => name)).size === subjects.length, {
        error: "two subjects have one name",
      }),
    predicateType: z.literal(predicateType),
    predicate,
  });

export interface Statement<Predicate = Json> {
  readonly _type: typeof STATEMENT_TYPE;
  readonly subject: readonly Subject[];
  readonly predicateType: string;
  readonly predicate: Predicate;
}

export function statementBytes(statement: Statement<unknown>): Buffer {
  return Buffer.from(canonicalize(statement as unknown as Json), "utf8");
}

const digests = new WeakMap<Statement<unknown>, string>();

export function statementDigest(statement: Statement<unknown>): string {
  const digest = digests.get(statement) ?? sha256Tagged(statementBytes(statement));
  digests.set(statement, digest);
  return digest;
}
