// A whole record, changed in thousands of ways: none of them verifies, and each says why.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import {
  type CompletionPredicate,
  fileText,
  type RecordFile,
} from "../../../../src/records/format/statements.ts";
import type { Trust } from "../../../../src/records/format/trust.ts";
import { REASONS, type ReasonCode } from "../../../../src/records/verify/reasons.ts";
import { verifyRecord } from "../../../../src/records/verify/verify-record.ts";
import { party, RUN, removalOf } from "../../../support/removal.ts";

const A = party("a.test");
const B = party("b.test");
const C = party("c.test");
const EXPECT = { remover: "a.test", partner: "b.test", run: RUN };

const here = await removalOf(A, B);
const older = await removalOf(A, B, {
  run: "f".repeat(32),
  item: (item) => ({ ...item, duration_ms: 7 }),
});
const withC = await removalOf(A, C);
const trust: Trust = { parties: [A.trusted, B.trusted, C.trusted], expect: EXPECT };

let refused = 0;

function assertRefused(bytes: Uint8Array, what: string): void {
  const { verified, problems } = verifyRecord(bytes, trust);
  assert.equal(verified, false, what);
  assert.ok(problems.length > 0, what);
  for (const { reason } of problems) assert.ok(reason in REASONS, what);
  refused += 1;
}

/** Of all pairs those of neighbours, in either order, and of parts far from each other. */
const isCompared = (one: number, other: number) => [1, -1, 7, -7, 13].includes(one - other);

const asFile = (file: unknown) => Buffer.from(fileText(file), "utf8");

describe("verifying forged records", () => {
  it("the record from which the forgeries are made verifies", () => {
    assert.deepEqual(verifyRecord(here.bytes, trust).problems, []);
    assert.deepEqual(verifyRecord(older.bytes, older.trust).problems, []);
    assert.deepEqual(verifyRecord(withC.bytes, { parties: trust.parties }).problems, []);
  });

  it("a record does not verify when a byte is changed, added or removed [OFF-3]", () => {
    const at = fc.nat(here.bytes.length - 1);
    const parameters = { numRuns: 130, endOnFailure: true };
    fc.assert(
      fc.property(at, fc.integer({ min: 1, max: 255 }), (place, flip) => {
        const forged = Buffer.from(here.bytes);
        forged[place] = (forged[place] ?? 0) ^ flip;
        assertRefused(forged, `byte ${place} ^ ${flip}`);
      }),
      parameters,
    );
    fc.assert(
      fc.property(at, fc.constantFrom(...Buffer.from(' \n\t",0}]a')), (place, byte) => {
        const { bytes } = here;
        assertRefused(
          Buffer.concat([bytes.subarray(0, place), Buffer.from([byte]), bytes.subarray(place)]),
          `byte ${byte} before ${place}`,
        );
      }),
      parameters,
    );
    fc.assert(
      fc.property(at, fc.integer({ min: 1, max: 200 }), (place, length) => {
        const { bytes } = here;
        assertRefused(
          Buffer.concat([bytes.subarray(0, place), bytes.subarray(place + length)]),
          `${length} bytes from ${place}`,
        );
      }),
      parameters,
    );
  });

  it("a record does not verify when a DSSE envelope is missing, repeated, moved or from another removal [OFF-3]", () => {
    const { file } = here;
    for (const [index, envelope] of file.stages.entries()) {
      const change = (stages: RecordFile["stages"], what: string) =>
        assertRefused(asFile({ ...file, stages }), `${what} ${index}`);
      change(file.stages.toSpliced(index, 1), "without");
      change(file.stages.toSpliced(index, 0, envelope), "twice");
      for (const [other, source] of file.stages.entries()) {
        if (!isCompared(index, other)) continue;
        change(file.stages.with(index, source), `${other} in the place of`);
        if (other > index)
          change(file.stages.with(index, source).with(other, envelope), `${other} exchanged with`);
      }
      for (const source of [older, withC]) {
        const replaced = source.file.stages[index];
        assert.ok(replaced !== undefined);
        change(file.stages.with(index, replaced), "of another removal");
      }
      assertRefused(asFile({ ...file, completion: envelope }), `stage ${index} as completion`);
      change(file.stages.with(index, file.completion), "the completion as stage");
    }
    for (const source of [older, withC]) {
      assertRefused(source.bytes, "another whole record");
      assertRefused(asFile({ ...file, completion: source.file.completion }), "another completion");
      assertRefused(asFile({ ...source.file, completion: file.completion }), "other stages");
      assertRefused(asFile({ ...file, evidence: source.file.evidence }), "other evidence");
    }
  });

  it("a record does not verify when a signature is missing, repeated, moved or exchanged [OFF-3]", () => {
    const { file } = here;
    const envelopes = [file.completion, ...file.stages];
    const put = (index: number, envelope: unknown) =>
      asFile(
        index === 0
          ? { ...file, completion: envelope }
          : { ...file, stages: file.stages.map((one, place) => (place === index - 1 ? envelope : one)) },
      );
    for (const [index, envelope] of envelopes.entries()) {
      const [first, second] = envelope.signatures;
      assert.ok(first !== undefined && second !== undefined);
      const lists = [
        [],
        [first],
        [second],
        [second, first],
        [first, first],
        [first, second, second],
        [
          { ...first, sig: second.sig },
          { ...second, sig: first.sig },
        ],
        [
          { ...first, keyid: second.keyid },
          { ...second, keyid: first.keyid },
        ],
        [{ ...first, sig: "" }, second],
      ];
      for (const signatures of lists)
        assertRefused(put(index, { ...envelope, signatures }), `signatures of ${index}`);
      for (const [other, source] of envelopes.entries()) {
        if (!isCompared(index, other)) continue;
        // The same pair as that payload under these signatures.
        assertRefused(
          put(index, { ...envelope, signatures: source.signatures }),
          `${other}'s signatures on ${index}`,
        );
      }
    }
  });

  it("a record does not verify when an item of evidence is missing, repeated, moved, added or changed [OFF-3]", () => {
    const { file } = here;
    for (const [index, item] of file.evidence.entries()) {
      const change = (evidence: unknown, what: string) =>
        assertRefused(asFile({ ...file, evidence }), `${what} ${index}`);
      // Some items are enough for what is checked of each alike, and fewer where each is changed in many ways.
      if (index % 2 === 0) change(file.evidence.toSpliced(index, 1), "without");
      if (index % 34 !== 0) continue;
      change(file.evidence.toSpliced(index, 0, item), "twice");
      change(
        file.evidence.with(index, file.evidence[(index + 1) % file.evidence.length] ?? item),
        "another for",
      );
      for (const [name, value] of Object.entries(item)) {
        const others = [null, "", "x", 1, [], { __proto__: null, x: 1 }].filter(
          (one) => JSON.stringify(one) !== JSON.stringify(value),
        );
        for (const other of others)
          change(file.evidence.with(index, { ...item, [name]: other }), `${name} of`);
        const { [name as keyof typeof item]: _, ...rest } = item;
        change(file.evidence.toSpliced(index, 1, rest as typeof item), `without ${name}`);
      }
      const text = here.bytes
        .toString("utf8")
        .replace(`{"at":"${item.at}"`, `{"at":"${item.at}","at":"${item.at}"`);
      assertRefused(Buffer.from(text), "a duplicate key");
      change(
        file.evidence.with(index, Object.assign(JSON.parse(`{"__proto__":{}}`), item)),
        "a prototype in",
      );
    }
    const held = new Set(file.evidence.map(({ digest }) => digest));
    for (const source of [older, withC]) {
      const more = source.file.evidence.filter(({ digest }) => !held.has(digest));
      assert.ok(more.length > 0);
      for (const item of more.filter((_, index) => index % 17 === 0)) {
        const evidence = [...file.evidence, item].sort((left, right) =>
          left.digest < right.digest ? -1 : 1,
        );
        assertRefused(asFile({ ...file, evidence }), "an item more");
      }
    }
  });

  it("each kind of forgery is reported with a reason of its own [OFF-3]", async () => {
    const { file } = here;
    const [first, ...rest] = file.stages;
    assert.ok(first !== undefined);
    const [one, other] = first.signatures;
    assert.ok(one !== undefined && other !== undefined);
    const swapped = [
      { ...one, sig: other.sig },
      { ...other, sig: one.sig },
    ];
    const raised = Buffer.from(here.bytes);
    raised[9] = 0xff;
    const lacking = (change: Partial<CompletionPredicate>) =>
      removalOf(A, B, { completion: (predicate) => ({ ...predicate, ...change }) });
    const exchanged: Trust = {
      parties: [
        { organisation: "a.test", keys: B.trusted.keys },
        { organisation: "b.test", keys: A.trusted.keys },
      ],
      expect: EXPECT,
    };
    const oneKey: Trust = {
      parties: [A.trusted, { organisation: "b.test", keys: A.trusted.keys }],
      expect: EXPECT,
    };
    const stageFrom = ({ file: source }: typeof here, index: number) =>
      asFile({ ...file, stages: file.stages.with(index, source.stages[index] ?? first) });
    const { duties } = here.completion.predicate;
    const ways: readonly (readonly [ReasonCode, Uint8Array, Trust?])[] = [
      ["record_unreadable", raised],
      ["signature_invalid", asFile({ ...file, stages: [{ ...first, signatures: swapped }, ...rest] })],
      ["signature_missing", asFile({ ...file, stages: [{ ...first, signatures: [one] }, ...rest] })],
      ["stage_missing", asFile({ ...file, stages: rest })],
      ["attestation_missing", (await lacking({ attestations: [] })).bytes],
      ["kind_contradicts_trigger", (await lacking({ kind: "emergency" })).bytes],
      ["static_tests_missing", (await lacking({ static_tests: [] })).bytes],
      ["evidence_missing", asFile({ ...file, evidence: file.evidence.slice(1) })],
      [
        "purge_not_shown",
        (await lacking({ duties: { ...duties, purge: { ...duties.purge, evidence: [] } } })).bytes,
      ],
      [
        "readmission_undecided",
        (await lacking({ readmission: { possible: true, owner: null, conditions: [] } })).bytes,
      ],
      ["other_parties", stageFrom(withC, 0)],
      ["other_run", stageFrom(older, 0)],
      ["run_not_expected", older.bytes],
      ["parties_not_expected", withC.bytes],
      ["stage_out_of_place", asFile({ ...file, stages: [...rest, first] })],
      ["key_not_attested", here.bytes, exchanged],
      ["key_of_two_parties", here.bytes, oneKey],
    ];
    const answers = new Set<string>();
    for (const [reason, bytes, by = trust] of ways) {
      const reasons = [...new Set(verifyRecord(bytes, by).problems.map((problem) => problem.reason))];
      assert.ok(reasons.includes(reason), `${reason}: ${reasons.join(", ")}`);
      answers.add(reasons.toSorted().join(" "));
    }
    assert.equal(new Set(ways.map(([reason]) => reason)).size, ways.length);
    assert.equal(answers.size, ways.length, "no two ways are answered alike");
  });

  it("the tests above try more than a thousand changes [OFF-3]", () => {
    assert.ok(refused > 1_000, String(refused));
  });
});
