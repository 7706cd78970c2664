// Records with altered payloads, signatures of others, exchanged keys, or about other parties or runs: none verifies.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { STAGE_NAMES } from "../../../../src/records/format/removal-stages.ts";
import type { Trust } from "../../../../src/records/format/trust.ts";
import { addSignature } from "../../../../src/records/sign/signer.ts";
import { verifyRecord } from "../../../../src/records/verify/verify-record.ts";
import { party, RUN, removalOf, resealed } from "../../../support/removal.ts";
import { A, B, C, changed, file, only, reasonsFor, signedAs } from "./changed-records.ts";

describe("verifyRecord, of who signed and about whom", () => {
  it("an item that was altered and given a new digest does not count for its stage [OFF-3]", async () => {
    const reasons = await changed(
      file((record) => {
        const evidence = record.evidence.map((item, index) =>
          index === 7 ? resealed({ ...item, status: 404 }) : item,
        );
        return {
          ...record,
          evidence: evidence.toSorted((left, right) => (left.digest < right.digest ? -1 : 1)),
        };
      }),
    );
    assert.deepEqual(reasons, ["evidence_missing", "evidence_extra"]);
  });

  it("a payload is refused unless it is the canonical text of a statement of its kind [OFF-3]", async () => {
    const { stages, trust, file: record } = await removalOf(A, B);
    const [first] = stages;
    assert.ok(first !== undefined);
    const { canonicalize } = await import("../../../../src/domain/canonical-json.ts");
    const text = canonicalize(JSON.parse(JSON.stringify(first)));
    const { fileText } = await import("../../../../src/records/format/statements.ts");
    const verifyWith = async (payload: string) => {
      const [, ...rest] = record.stages;
      return reasonsFor(
        Buffer.from(fileText({ ...record, stages: [await signedAs(payload), ...rest] })),
        trust,
      );
    };
    assert.deepEqual(await verifyWith(text), []);
    assert.deepEqual(await verifyWith(JSON.stringify(first, null, 1)), ["not_canonical"]);
    for (const payload of [
      text.replace('"position":1', '"position":1,"position":1'),
      text.replace('"attested":[]', '"attested":["a word of text"]'),
      text.replace('"attested":[]', '"attested":[],"more":1'),
      text.replace('"attested":[]', '"__proto__":{},"attested":[]'),
      "[]",
      "",
    ]) {
      assert.deepEqual(await verifyWith(payload), ["not_a_statement"], payload.slice(0, 100));
    }
    // Of a version that is yet to come, and of a kind that belongs elsewhere.
    const { completion: other } = await removalOf(A, B);
    for (const payload of [
      text.replace("stage:v1", "stage:v2"),
      canonicalize(JSON.parse(JSON.stringify(other))),
    ])
      assert.deepEqual(await verifyWith(payload), ["other_predicate_type"]);
  });

  it("a signature by a third organisation makes a DSSE envelope invalid, trusted or not [OFF-3]", async () => {
    const { stages, file: record } = await removalOf(A, B);
    const [first] = stages;
    assert.ok(first !== undefined);
    const { fileText } = await import("../../../../src/records/format/statements.ts");
    const three = await addSignature(record.stages[0] ?? record.completion, C.signer);
    const bytes = Buffer.from(fileText({ ...record, stages: [three, ...record.stages.slice(1)] }));
    const parties = [A.trusted, B.trusted];
    assert.deepEqual(reasonsFor(bytes, { parties }), ["unknown_key"]);
    assert.deepEqual(reasonsFor(bytes, { parties: [...parties, C.trusted] }), ["signature_extra"]);

    const second = party("a.test");
    const twice = await addSignature(record.stages[0] ?? record.completion, second.signer);
    const rotated = { organisation: "a.test", keys: [...A.trusted.keys, ...second.trusted.keys] };
    const byTwoKeys = Buffer.from(fileText({ ...record, stages: [twice, ...record.stages.slice(1)] }));
    assert.deepEqual(reasonsFor(byTwoKeys, { parties: [rotated, B.trusted] }), ["signature_extra"]);
  });

  it("exchanged, shared or unknown keys verify nothing [OFF-3]", async () => {
    const { bytes, trust } = await removalOf(A, B);
    assert.deepEqual(reasonsFor(bytes, trust), []);
    const a = { organisation: "a.test", keys: A.trusted.keys };
    const keysOf = (organisation: string, { trusted }: typeof A) => ({ organisation, keys: trusted.keys });
    const both: Trust["parties"] = [
      a,
      { organisation: "b.test", keys: [...B.trusted.keys, ...A.trusted.keys] },
    ];
    assert.deepEqual(reasonsFor(bytes, { parties: both }), ["key_of_two_parties", "unknown_key"]);
    assert.deepEqual(reasonsFor(bytes, { parties: [a, keysOf("b.test", A)] }), [
      "key_of_two_parties",
      "unknown_key",
    ]);
    assert.deepEqual(reasonsFor(bytes, { parties: [a] }), ["unknown_key"]);
    assert.deepEqual(reasonsFor(bytes, { parties: [a, keysOf("c.test", B)] }), [
      "signature_missing",
      "signature_extra",
    ]);
  });

  it("a record does not verify when the keys of the two parties are exchanged, though both have signed everything [OFF-3]", async () => {
    const { bytes } = await removalOf(A, B);
    const exchanged: Trust["parties"] = [
      { organisation: "a.test", keys: B.trusted.keys },
      { organisation: "b.test", keys: A.trusted.keys },
    ];
    assert.deepEqual(reasonsFor(bytes, { parties: exchanged }), ["key_not_attested"]);
  });

  it("a complete record does not verify when another run or other parties are expected [OFF-3]", async () => {
    const old = await removalOf(A, B, { run: "f".repeat(32) });
    const expect = { remover: "a.test", partner: "b.test", run: RUN };
    assert.deepEqual(reasonsFor(old.bytes, { ...old.trust, expect }), ["run_not_expected"]);
    const turned = await removalOf(B, A);
    assert.deepEqual(reasonsFor(turned.bytes, { ...turned.trust, expect }), ["parties_not_expected"]);
    const { bytes, trust } = await removalOf(A, B);
    assert.deepEqual(reasonsFor(bytes, { ...trust, expect }), []);
    assert.deepEqual(reasonsFor(bytes, { ...trust, expect: { remover: "a.test", partner: "c.test" } }), [
      "party_untrusted",
      "parties_not_expected",
    ]);
  });

  it("a signed stage of another partner does not belong to this removal [OFF-3]", async () => {
    const here = await removalOf(A, B);
    const there = await removalOf(A, C);
    const { fileText } = await import("../../../../src/records/format/statements.ts");
    const mixed = { ...here.file, stages: [...there.file.stages.slice(0, 1), ...here.file.stages.slice(1)] };
    const parties = [A.trusted, B.trusted, C.trusted];
    const reasons = reasonsFor(Buffer.from(fileText(mixed)), { parties });
    assert.ok(reasons.includes("other_parties") && reasons.includes("stage_not_bound"), reasons.join(", "));
    assert.ok(reasonsFor(Buffer.from(fileText(mixed)), here.trust).includes("unknown_key"));
  });

  it("a record is refused when an organisation removes itself or a third one states a part [OFF-3]", async () => {
    const self = await removalOf(A, A);
    const found = verifyRecord(self.bytes, { parties: [A.trusted] }).problems;
    const places = found.flatMap(({ reason, where }) => (reason === "one_party" ? where : []));
    assert.deepEqual(
      [...new Set(places)],
      STAGE_NAMES.map((stage) => `a.test/${stage}`),
    );
    const third = await removalOf(A, B, {
      stage: only("b.test", "room", () => ({ organisation: "c.test" })),
    });
    const named = verifyRecord(third.bytes, third.trust).problems;
    assert.deepEqual(named.flatMap(({ reason, where }) => (reason === "not_a_party" ? where : [])).sort(), [
      "c.test/room",
      "completion",
    ]);
  });
});
