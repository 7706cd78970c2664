// Two organisations state, countersign and complete a removal, passing nothing between them but files.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { DsseEnvelope } from "../../../../src/records/format/dsse-envelope.ts";
import { type EvidenceItem, evidenceItem, isOfPurge } from "../../../../src/records/format/evidence-item.ts";
import {
  STAGE_NAMES,
  type StageName,
  statementOrder,
} from "../../../../src/records/format/removal-stages.ts";
import { fileText, statementDigest } from "../../../../src/records/format/statements.ts";
import {
  assembleRecord,
  byDigest,
  exportExchange,
  type HeldStatements,
  importExchange,
  mergeSignatures,
  type OwnRemoval,
  stagesIn,
} from "../../../../src/records/sign/export-and-import.ts";
import {
  completionStatement,
  countersignOnce,
  stageStatement,
} from "../../../../src/records/sign/sign-statements.ts";
import { addSignature, type Signer } from "../../../../src/records/sign/signer.ts";
import { type ReasonCode, RecordRefused } from "../../../../src/records/verify/reasons.ts";
import { verifyRecord } from "../../../../src/records/verify/verify-record.ts";
import { placeOf } from "../../../../src/records/verify/verify-stages.ts";
import {
  completionInput,
  itemsOf,
  minute,
  type Party,
  party,
  RUN,
  signStatement,
  stageInput,
} from "../../../support/removal.ts";

const A = party("a.test");
const B = party("b.test");
const C = party("c.test");
const PARTIES = [A.trusted, B.trusted];
const NOTHING: HeldStatements = { envelopes: [], evidence: [] };

const ownRemoval = ({ name }: Party): OwnRemoval => ({
  run: RUN,
  kind: "full",
  remover: "a.test",
  partner: "b.test",
  self: name,
  parties: PARTIES,
});

const bytes = (text: string) => Buffer.from(text, "utf8");

/** An organisation states a stage after those that it holds, and signs it. */
async function state(own: Party, held: HeldStatements, stage: StageName, removal = ownRemoval(own)) {
  const other = own === A ? B : A;
  const items = itemsOf(own.name, other.name, stage);
  const before = STAGE_NAMES[STAGE_NAMES.indexOf(stage) - 1];
  const previous =
    before === undefined
      ? null
      : (stagesIn(held.envelopes).get(placeOf({ organisation: own.name, stage: before })) ?? null);
  const slot = { organisation: own.name, stage };
  const { schema: _, position: __, ...input } = stageInput(removal.run, "a.test", "b.test", slot, items);
  const evidence = items;
  const statement = stageStatement({ ...input, previous }, byDigest(evidence));
  const envelope = await signStatement(statement, own.signer);
  return {
    envelope,
    held: { envelopes: [...held.envelopes, envelope], evidence: [...held.evidence, ...evidence] },
  };
}

/** Takes in what the other wrote, countersigns what is new, and writes it back. */
async function answer(own: Party, held: HeldStatements, file: string) {
  const taken = importExchange(bytes(file), ownRemoval(own), held).held;
  const envelopes = [];
  for (const envelope of taken.envelopes) {
    const isOurs = envelope.signatures.some(({ keyid }) => keyid === own.signer.keyId);
    envelopes.push(isOurs ? envelope : await countersign(envelope, ownRemoval(own), taken, own.signer));
  }
  const answered = { envelopes, evidence: taken.evidence };
  return { held: answered, file: exportExchange(ownRemoval(own), { ...answered, envelopes }) };
}

/** As where nothing was countersigned before. */
function countersign(...of: [DsseEnvelope, OwnRemoval, HeldStatements, Signer]) {
  return countersignOnce({ read: () => undefined, write: () => undefined }, ...of);
}

/** Both organisations up to the last stage, each holding everything. */
async function exchanged(): Promise<{ a: HeldStatements; b: HeldStatements }> {
  let a = NOTHING;
  let b = NOTHING;
  for (const stage of STAGE_NAMES) {
    a = (await state(A, a, stage)).held;
    b = (await state(B, b, stage)).held;
    const fromB = await answer(B, b, exportExchange(ownRemoval(A), a));
    const fromA = await answer(A, a, fromB.file);
    a = fromA.held;
    b = importExchange(bytes(fromA.file), ownRemoval(B), fromB.held).held;
  }
  return { a, b };
}

const ordered = (held: HeldStatements) => {
  const stages = stagesIn(held.envelopes);
  return statementOrder("a.test", "b.test").flatMap((slot) => stages.get(placeOf(slot)) ?? []);
};

function complete(held: HeldStatements) {
  const purged = held.evidence
    .filter((item) => isOfPurge(item) && item.partner === "b.test")
    .map(({ digest }) => digest);
  return completionStatement(completionInput(RUN, A, B, purged), ordered(held), byDigest(held.evidence));
}

/** The statement of A about that stage, after all before it. */
async function upTo(last: StageName) {
  let held = NOTHING;
  for (const stage of STAGE_NAMES.slice(0, STAGE_NAMES.indexOf(last) + 1))
    held = (await state(A, held, stage)).held;
  const statement = stagesIn(held.envelopes).get(placeOf({ organisation: "a.test", stage: last }));
  assert.ok(statement !== undefined);
  return statement;
}

async function refusedWith(action: () => unknown, ...reasons: ReasonCode[]): Promise<void> {
  await assert.rejects(
    async () => action(),
    (error: unknown) => {
      assert.ok(error instanceof RecordRefused, String(error));
      assert.equal(error.code, "record_refused");
      assert.deepEqual(
        [...new Set(error.problems.map(({ reason }) => reason))].toSorted(),
        reasons.toSorted(),
      );
      for (const reason of reasons) assert.ok(error.message.includes(reason));
      assert.notEqual(error.hint, undefined);
      return true;
    },
  );
}

describe("exchanging statements", () => {
  it("two organisations that exchange files end with one verified record [OFF-2] [OFF-3]", async () => {
    const { a, b } = await exchanged();
    assert.equal(a.envelopes.length, 12);
    const stated = await signStatement(complete(a), A.signer);
    const withCompletion = { ...a, envelopes: [...a.envelopes, stated] };
    const fromB = await answer(
      B,
      b,
      exportExchange(ownRemoval(A), { ...withCompletion, evidence: a.evidence }),
    );
    const done = importExchange(bytes(fromB.file), ownRemoval(A), withCompletion);
    assert.deepEqual(done.added, { statements: 0, signatures: 1, evidence: 0 });
    const text = assembleRecord(done.held, { parties: PARTIES });
    assert.equal(text, assembleRecord(fromB.held, { parties: PARTIES }), "both hold the same bytes");
    assert.deepEqual(verifyRecord(bytes(text), { parties: PARTIES }).problems, []);
  });

  it("importing a file again changes nothing [OFF-2]", async () => {
    const first = await state(A, NOTHING, "a2a_stop");
    const file = exportExchange(ownRemoval(A), first.held);
    const once = importExchange(bytes(file), ownRemoval(B), NOTHING);
    assert.deepEqual(once.added, { statements: 1, signatures: 1, evidence: 7 });
    const again = importExchange(bytes(file), ownRemoval(B), once.held);
    assert.deepEqual(again, { held: once.held, added: { statements: 0, signatures: 0, evidence: 0 } });
    const signed = await answer(B, once.held, file);
    assert.deepEqual(importExchange(bytes(file), ownRemoval(B), signed.held).held, signed.held);
    const [envelope] = signed.held.envelopes;
    assert.ok(envelope !== undefined);
    assert.equal(await countersign(envelope, ownRemoval(A), first.held, A.signer), envelope);
  });

  it("a whole file is refused when anything in it is not the other organisation's [OFF-2]", async () => {
    const { held } = await state(A, NOTHING, "a2a_stop");
    const file = { schema: "svc.federation.offboarding_exchange.v1", run: RUN, from: "a.test", ...held };
    const offer = (changes: object) => () =>
      importExchange(bytes(fileText({ ...file, ...changes })), ownRemoval(B), NOTHING);
    const [envelope] = held.envelopes;
    const [item] = held.evidence;
    assert.ok(envelope !== undefined && item !== undefined);
    assert.equal(offer({})().added.statements, 1);
    await refusedWith(offer({ schema: "svc.other.v1" }), "exchange_malformed");
    await refusedWith(offer({ more: 1 }), "exchange_malformed");
    await refusedWith(() => importExchange(bytes("{"), ownRemoval(B), NOTHING), "exchange_malformed");
    await refusedWith(
      () => importExchange(bytes(fileText(file)), ownRemoval(A), NOTHING),
      "exchange_from_another",
      "signature_missing",
    );
    await refusedWith(offer({ from: "c.test" }), "exchange_from_another");
    await refusedWith(offer({ run: "f".repeat(32) }), "other_run");
    await refusedWith(offer({ evidence: held.evidence.slice(1) }), "evidence_missing");
    await refusedWith(
      offer({ evidence: [{ ...item, status: 200 }, ...held.evidence.slice(1)] }),
      "evidence_altered",
    );
    const strange = itemsOf("a.test", "b.test", "room");
    await refusedWith(offer({ evidence: [...held.evidence, ...strange] }), "evidence_extra");
    const unsigned = {
      ...envelope,
      signatures: [{ keyid: B.signer.keyId, sig: envelope.signatures[0]?.sig ?? "" }],
    };
    await refusedWith(offer({ envelopes: [unsigned] }), "signature_invalid");
    const byC = await addSignature({ ...envelope, signatures: [] }, C.signer);
    await refusedWith(offer({ envelopes: [byC] }), "unknown_key");
    const earlier = await state(A, NOTHING, "a2a_stop", { ...ownRemoval(A), run: "e".repeat(32) });
    await refusedWith(offer(earlier.held), "other_run");
  });

  it("a second statement about the same stage is refused, and the first one stays [OFF-2]", async () => {
    const { held } = await state(A, NOTHING, "a2a_stop");
    const taken = importExchange(bytes(exportExchange(ownRemoval(A), held)), ownRemoval(B), NOTHING).held;
    const [statement] = stagesIn(held.envelopes).values();
    assert.ok(statement !== undefined);
    const other = { ...statement, predicate: { ...statement.predicate, attested: ["more"] } };
    const file = exportExchange(ownRemoval(A), {
      ...held,
      envelopes: [await signStatement(other, A.signer)],
    });
    await refusedWith(() => importExchange(bytes(file), ownRemoval(B), taken), "statement_conflicts");
  });

  it("a statement is countersigned only when it is signed, of this run, and holds [OFF-2]", async () => {
    const first = await state(A, NOTHING, "a2a_stop");
    const second = await state(A, first.held, "a2a_discovery");
    const sign = (envelope = first.envelope, held: HeldStatements = first.held, removal = ownRemoval(B)) =>
      countersign(envelope, removal, held, B.signer);
    assert.equal((await sign()).signatures.length, 2);
    assert.equal((await sign(second.envelope, second.held)).signatures.length, 2);
    await refusedWith(() => sign({ ...first.envelope, payload: "e30=" }), "signature_invalid");
    await refusedWith(() => sign(first.envelope, NOTHING), "evidence_missing");
    await refusedWith(
      () => sign(first.envelope, first.held, { ...ownRemoval(B), run: "f".repeat(32) }),
      "other_run",
    );
    await refusedWith(
      () => sign(first.envelope, first.held, { ...ownRemoval(B), kind: "partial" }),
      "other_kind",
    );
    await refusedWith(() => sign(second.envelope, { ...second.held, envelopes: [] }), "stage_missing");
    const [started] = stagesIn(first.held.envelopes).values();
    assert.ok(started !== undefined);
    const restarted = { ...started, predicate: { ...started.predicate, attested: ["more"] } };
    const replaced = { ...second.held, envelopes: [await signStatement(restarted, A.signer)] };
    await refusedWith(() => sign(second.envelope, replaced), "chain_broken");
    // What the other organisation says about this one's part.
    const mine = await state(B, NOTHING, "a2a_stop");
    const byA = await addSignature({ ...mine.envelope, signatures: [] }, A.signer);
    await refusedWith(() => sign(byA, mine.held), "states_for_another");
    // And it is not taken in, unless this organisation has signed it as well and lost it.
    const planted = exportExchange(ownRemoval(A), { ...mine.held, envelopes: [byA] });
    await refusedWith(() => importExchange(bytes(planted), ownRemoval(B), NOTHING), "states_for_another");
    const returned = exportExchange(ownRemoval(A), {
      ...mine.held,
      envelopes: [await addSignature(mine.envelope, A.signer)],
    });
    assert.equal(importExchange(bytes(returned), ownRemoval(B), NOTHING).added.statements, 1);
  });

  it("a completion is countersigned only when everything that it binds is present [OFF-2]", async () => {
    const { a, b } = await exchanged();
    const completion = await signStatement(complete(a), A.signer);
    const sign = (held: HeldStatements, removal = ownRemoval(B)) =>
      countersign(completion, removal, held, B.signer);
    assert.equal((await sign(b)).signatures.length, 2);
    await refusedWith(
      () => sign({ ...b, envelopes: b.envelopes.slice(0, -1) }),
      "stage_missing",
      "stage_bound_but_absent",
      "evidence_bound_but_absent",
      "purge_not_shown",
    );
    await refusedWith(() => sign({ ...b, evidence: b.evidence.slice(1) }), "evidence_missing");
    const second = party("b.test");
    const keys = [...B.trusted.keys, ...second.trusted.keys];
    const removal = { ...ownRemoval(B), parties: [A.trusted, { ...B.trusted, keys }] };
    await refusedWith(() => countersign(completion, removal, b, second.signer), "key_not_attested");
  });

  it("a completion that a party has signed by another of its pinned keys is not taken in [OFF-3]", async () => {
    const { a } = await exchanged();
    const second = party("b.test");
    const keys = [...B.trusted.keys, ...second.trusted.keys];
    const parties = [A.trusted, { ...B.trusted, keys }];
    const completion = await signStatement(complete(a), A.signer);
    const held = { ...a, envelopes: [...a.envelopes, completion] };
    const returned = async ({ signer }: Party) => {
      const signed = await addSignature(completion, signer);
      const file = exportExchange({ ...ownRemoval(B), parties }, { envelopes: [signed], evidence: [] });
      return importExchange(bytes(file), { ...ownRemoval(A), parties }, held);
    };
    await refusedWith(() => returned(second), "key_not_attested");
    assert.equal((await returned(B)).added.signatures, 1);
    const [byOne, byOther] = [
      await addSignature(completion, B.signer),
      await addSignature(completion, second.signer),
    ];
    assert.deepEqual(mergeSignatures(byOne, byOther, parties), byOne, "one signature an organisation");
  });

  it("a stage whose exit condition does not hold cannot be stated [OFF-2]", async () => {
    const open = itemsOf("a.test", "b.test", "transport", {
      item: (item) => ({ ...item, verdict: "open" }),
    });
    const slot = { organisation: "a.test", stage: "transport" } as const;
    const { schema: _, position: __, ...input } = stageInput(RUN, "a.test", "b.test", slot, open);
    const stop = await upTo("policy_border");
    const evidence = byDigest(open);
    await refusedWith(
      () => stageStatement({ ...input, previous: stop }, evidence),
      "condition_refuted",
      "evidence_shows_nothing",
    );
    await refusedWith(
      () => stageStatement({ ...input, attested: ["two words"], previous: stop }, evidence),
      "not_a_statement",
    );
  });

  it("a stage says that nothing applies only with an item that shows it [OFF-5]", async () => {
    const all = itemsOf("b.test", "a.test", "a2a_stop");
    const items = all.filter(({ vantage }) => vantage === "operator");
    const render = items.find(({ probe }) => probe === "render");
    assert.ok(render !== undefined);
    const { digest: __, ...body } = render;
    const none = evidenceItem({
      ...body,
      probe: "agents_offered",
      subject: null,
      reason: "no_agent_offered",
    });
    const slot = { organisation: "b.test", stage: "a2a_stop" } as const;
    const stated = (evidence: readonly EvidenceItem[]) => {
      const { schema: _, position: ___, ...input } = stageInput(RUN, "a.test", "b.test", slot, evidence);
      const scope = { ...input.scope, agents: [] };
      return stageStatement({ ...input, scope, previous: null }, byDigest(evidence));
    };
    assert.equal(stated([...items, none]).predicate.stage, "a2a_stop");
    await refusedWith(() => stated(items), "condition_unproved");
  });

  it("a stage is stated and countersigned only after the stage before it of the same run [OFF-2]", async () => {
    const items = itemsOf("a.test", "b.test", "room");
    const slot = { organisation: "a.test", stage: "room" } as const;
    const { schema: _, position: __, ...input } = stageInput(RUN, "a.test", "b.test", slot, items);
    const evidence = byDigest(items);
    const previous = await upTo("a2a_discovery");
    const statement = stageStatement({ ...input, previous }, evidence);
    await refusedWith(
      async () => stageStatement({ ...input, previous: await upTo("a2a_stop") }, evidence),
      "chain_broken",
    );
    await refusedWith(() => stageStatement({ ...input, previous: null }, evidence), "chain_broken");
    const after = (changes: object) => ({ ...previous, predicate: { ...previous.predicate, ...changes } });
    const later = after({ closed_at: minute(59) });
    await refusedWith(() => stageStatement({ ...input, previous: later }, evidence), "times_out_of_order");
    const otherRun = after({ run: "f".repeat(32) });
    await refusedWith(() => stageStatement({ ...input, previous: otherRun }, evidence), "other_run");
    // Nor does the other organisation sign it, whatever this one's program has let through.
    const predicate = { ...statement.predicate, previous: statementDigest(later) };
    const envelope = await signStatement({ ...statement, predicate }, A.signer);
    const held = {
      envelopes: [await signStatement(later, A.signer), envelope],
      evidence: [...evidence.values()],
    };
    await refusedWith(() => countersign(envelope, ownRemoval(B), held, B.signer), "times_out_of_order");
  });

  it("a statement is exported only when this organisation has signed it [OFF-2]", async () => {
    const { envelope, held } = await state(A, NOTHING, "a2a_stop");
    await refusedWith(
      () => exportExchange(ownRemoval(B), { ...held, envelopes: [envelope] }),
      "signature_missing",
    );
    await refusedWith(
      () => exportExchange(ownRemoval(A), { ...held, envelopes: [{ ...envelope, payload: "e30=" }] }),
      "signature_invalid",
    );
  });

  it("a completion that lacks a part is not stated, and a record that would not verify is not assembled [OFF-3]", async () => {
    const { a } = await exchanged();
    const input = completionInput(RUN, A, B, []);
    const evidence = byDigest(a.evidence);
    await refusedWith(() => completionStatement(input, ordered(a), evidence), "purge_not_shown");
    await refusedWith(
      () =>
        completionStatement({ ...input, attestations: [], completed_at: minute(1) }, ordered(a), evidence),
      "purge_not_shown",
      "attestation_missing",
      "times_out_of_order",
    );
    await refusedWith(() => assembleRecord(a, { parties: PARTIES }), "record_malformed");
    const half = { ...a, envelopes: [...a.envelopes, await signStatement(complete(a), A.signer)] };
    await refusedWith(() => assembleRecord(half, { parties: PARTIES }), "signature_missing");
  });

  it("the order in which statements and items arrive does not change the record", async () => {
    const { a } = await exchanged();
    const completion = await addSignature(await signStatement(complete(a), A.signer), B.signer);
    const envelopes = [...a.envelopes, completion];
    const wanted = assembleRecord({ envelopes, evidence: a.evidence }, { parties: PARTIES });
    fc.assert(
      fc.property(
        fc.shuffledSubarray(envelopes, { minLength: envelopes.length }),
        fc.shuffledSubarray([...a.evidence], { minLength: a.evidence.length }),
        (some, items) => {
          assert.equal(assembleRecord({ envelopes: some, evidence: items }, { parties: PARTIES }), wanted);
        },
      ),
      { numRuns: 20 },
    );
  });

  it("a file with more statements than a removal has is refused before any is evaluated, and of many reasons some are told [OFF-3]", async () => {
    const { envelope, held } = await state(A, NOTHING, "a2a_stop");
    const { from, run, schema } = JSON.parse(exportExchange(ownRemoval(A), held));
    const evidence: readonly EvidenceItem[] = [];
    const fileOf = (count: number) =>
      bytes(
        fileText({ schema, run, from, evidence, envelopes: Array.from({ length: count }, () => envelope) }),
      );
    const refusalOf = (count: number) => {
      try {
        importExchange(fileOf(count), ownRemoval(B), NOTHING);
      } catch (error) {
        assert.ok(error instanceof RecordRefused);
        return error;
      }
      return assert.fail("it was taken in");
    };
    assert.deepEqual(
      refusalOf(14).problems.map(({ reason }) => reason),
      ["exchange_malformed"],
    );
    const { problems, message } = refusalOf(13);
    assert.ok(problems.length > 50);
    assert.equal(message.split("\n").length, 52);
    assert.match(message, /and \d+ more$/);
  });
});
