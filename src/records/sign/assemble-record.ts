// Putting the record file together from what both organisations have signed.
// Invariant: only a record that verifies is ever put together.
import type { DsseEnvelope } from "../format/dsse-envelope.ts";
import { fileText, RECORD_SCHEMA, type RecordFile } from "../format/record-file.ts";
import { statementOrder } from "../format/stages.ts";
import type { Trust } from "../format/trust.ts";
import { placeOf } from "../verify/stage.ts";
import { verifyRecord } from "../verify/verify-record.ts";
import { type HeldStatements, isCompletion, placeOfStatement, statementIn } from "./held-statements.ts";
import { RecordRefused } from "./record-refused.ts";

/**
 * The text of the record file.
 * @param trust what an auditor would use
 * @throws RecordRefused (`record_refused`) when it would not verify, with every reason
 */
export function assembleRecord(held: HeldStatements, trust: Trust): string {
  const byPlace = new Map<string, DsseEnvelope>();
  let bound: ReadonlySet<string> = new Set();
  let order: readonly string[] = [];
  for (const envelope of held.envelopes) {
    const statement = statementIn(envelope);
    if (statement === undefined) continue;
    byPlace.set(placeOfStatement(statement), envelope);
    if (!isCompletion(statement)) continue;
    const { remover, partner, evidence } = statement.predicate;
    bound = new Set(evidence);
    order = statementOrder(remover, partner).map(placeOf);
  }
  const completion = byPlace.get("completion");
  if (completion === undefined) {
    throw new RecordRefused("there is no record yet", [{ reason: "record_malformed", where: "completion" }]);
  }
  const file: RecordFile = {
    schema: RECORD_SCHEMA,
    completion,
    stages: order.map((place) => byPlace.get(place)).filter((envelope) => envelope !== undefined),
    evidence: held.evidence
      .filter(({ digest }) => bound.has(digest))
      .sort((left, right) => (left.digest < right.digest ? -1 : 1)),
  };
  const text = fileText(file);
  const { problems } = verifyRecord(Buffer.from(text, "utf8"), trust);
  if (problems.length > 0) throw new RecordRefused("the record would not verify", problems);
  return text;
}
