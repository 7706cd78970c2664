// What is changed of a sample record, by what it is changed, and the reasons by which the result is refused.

import assert from "node:assert/strict";
import { preAuthenticationEncoding } from "../../../../src/records/format/dsse-envelope.ts";
import type { EvidenceItemBody } from "../../../../src/records/format/evidence-item.ts";
import type { StageName } from "../../../../src/records/format/removal-stages.ts";
import type {
  CompletionPredicate,
  RecordFile,
  StagePredicate,
} from "../../../../src/records/format/statements.ts";
import type { Trust } from "../../../../src/records/format/trust.ts";
import type { ReasonCode } from "../../../../src/records/verify/reasons.ts";
import { verifyRecord } from "../../../../src/records/verify/verify-record.ts";
import { type Changes, party, removalOf } from "../../../support/removal.ts";

export const A = party("a.test");
export const B = party("b.test");
export const C = party("c.test");
/** Says that an organisation does not manage its gateway. */
export const unmanaged = (item: EvidenceItemBody): EvidenceItemBody => ({
  ...item,
  probe: "part_managed",
  vantage: "operator",
  subject: "gateway",
  verdict: "unknown",
  layer: "configuration",
  status: null,
  reason: "unmanaged",
});
export const LEFT_ALONE = {
  probe: "left_alone",
  layer: "none",
  vantage: "nobody",
  verdict: "unknown",
} as const;
export const OTHER_DIGEST = `sha256:${"f".repeat(64)}`;

export const reached = new Set<ReasonCode>();
/** The reasons, each once, in the order told. */
export function reasonsFor(bytes: Uint8Array, trust: Trust): ReasonCode[] {
  const { verified, problems } = verifyRecord(bytes, trust);
  assert.equal(verified, problems.length === 0);
  const reasons = [...new Set(problems.map(({ reason }) => reason))];
  for (const reason of reasons) reached.add(reason);
  return reasons;
}

export const changed = async (changes: Changes) => {
  const { bytes, trust } = await removalOf(A, B, changes);
  return reasonsFor(bytes, trust);
};

/** Changes one stage of one organisation alone. */
export const only =
  (organisation: string, stage: StageName, change: (predicate: StagePredicate) => Partial<StagePredicate>) =>
  (predicate: StagePredicate): StagePredicate =>
    predicate.organisation === organisation && predicate.stage === stage
      ? { ...predicate, ...change(predicate) }
      : predicate;

export const completion = (
  change: (predicate: CompletionPredicate) => Partial<CompletionPredicate>,
): Changes => ({
  completion: (predicate) => ({ ...predicate, ...change(predicate) }),
});

export const file = (change: (file: RecordFile) => unknown): Changes => ({ file: change });

export const onFirst = (change: (envelope: RecordFile["completion"]) => unknown) =>
  file((record) => ({
    ...record,
    stages: record.stages.map((one, index) => (index === 0 ? change(one) : one)),
  }));

/** Both organisations' signatures over any payload. */
export async function signedAs(payload: string) {
  const bytes = Buffer.from(payload, "utf8");
  const payloadType = "application/vnd.in-toto+json";
  const data = preAuthenticationEncoding(payloadType, bytes);
  const { inOneForm } = await import("../../../../src/records/format/ecdsa-p256.ts");
  const signatures = await Promise.all(
    [A, B].map(async ({ signer }) => ({
      keyid: signer.keyId,
      sig: inOneForm(await signer.sign(data))?.toString("base64") ?? "",
    })),
  );
  signatures.sort((left, right) => (left.keyid < right.keyid ? -1 : 1));
  return { payloadType, payload: bytes.toString("base64"), signatures };
}
