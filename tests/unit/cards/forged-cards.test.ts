// Some three thousand forged or odd variants of one correct card, each refused.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { verifyCard } from "../../../src/cards/verify.ts";
import { bytesOf } from "../../support/cards.ts";
import * as content from "./forged-content.ts";
import { type Forgery, ours, SIGNATURE, SIGNED, withSignatures } from "./forged-content.ts";
import * as signatures from "./forged-signatures.ts";

const SUITES: readonly (readonly [string, () => Forgery[], least: number])[] = [
  ["wrong types", content.wrongTypes, 300],
  ["unknown fields", content.unknownFields, 200],
  ["snake_case names", content.snakeCase, 50],
  ["missing fields", content.missingFields, 100],
  ["changed text", content.changedText, 200],
  ["duplicate keys", content.duplicateKeys, 100],
  ["odd encodings", content.oddEncodings, 20],
  ["ambiguous variants", content.ambiguousVariants, 4],
  ["odd protected headers", signatures.oddHeaders, 50],
  ["confused keys", signatures.confusedKeys, 20],
  ["odd signatures", signatures.oddSignatures, 30],
  ["odd entries", signatures.oddEntries, 30],
  ["other payloads", signatures.otherPayloads, 9],
];

describe("verifying forged cards", () => {
  for (const [name, make, least] of SUITES) {
    it(`forged cards are refused: ${name} [AGT-3]`, async () => {
      const forgeries = make();
      assert.ok(forgeries.length >= least, `only ${forgeries.length} variants`);
      const accepted: string[] = [];
      for (const [what, card] of forgeries) {
        if ((await verifyCard(card, [ours.pinned])).accepted) accepted.push(what);
      }
      assert.deepEqual(accepted, []);
    });
  }

  it("the card from which the forgeries are made is accepted [AGT-3]", async () => {
    assert.equal((await verifyCard(bytesOf(SIGNED), [ours.pinned])).accepted, true);
    for (const entries of [[SIGNATURE], [SIGNATURE, signatures.FOREIGN]]) {
      assert.equal((await verifyCard(withSignatures(entries), [ours.pinned])).accepted, true);
    }
  });

  it("a card with a changed byte is refused, unless its content is the same [AGT-3]", async () => {
    const bytes = bytesOf(SIGNED);
    const verdict = await verifyCard(bytes, [ours.pinned]);
    assert.ok(verdict.accepted);
    await fc.assert(
      fc.asyncProperty(fc.nat(bytes.length - 1), fc.integer({ min: 1, max: 255 }), async (at, flip) => {
        const mutated = Buffer.from(bytes);
        mutated.writeUInt8((mutated[at] ?? 0) ^ flip, at);
        const after = await verifyCard(mutated, [ours.pinned]);
        if (after.accepted) assert.equal(after.digest, verdict.digest);
      }),
      { numRuns: 1_500 },
    );
  });
});
