// Every way in which a record is not whole or not genuine, each with its own reason and nothing else.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { preAuthenticationEncoding } from "../../../../src/records/format/dsse-envelope.ts";
import type { EvidenceItemBody } from "../../../../src/records/format/evidence-item.ts";
import { RECORD_EVIDENCE_MAX, RECORD_STAGES_MAX } from "../../../../src/records/format/fields.ts";
import type { CompletionPredicate, StagePredicate } from "../../../../src/records/format/predicates.ts";
import { fileText, type RecordFile } from "../../../../src/records/format/record-file.ts";
import type { StageName } from "../../../../src/records/format/stages.ts";
import type { Trust } from "../../../../src/records/format/trust.ts";
import { addSignature } from "../../../../src/records/sign/signer.ts";
import { REASONS, type ReasonCode } from "../../../../src/records/verify/reasons.ts";
import { verifyRecord } from "../../../../src/records/verify/verify-record.ts";
import {
  type Changes,
  minute,
  party,
  type Removal,
  RUN,
  removalOf,
  resealed,
  signStatement,
} from "../../../support/removal.ts";
import { ROOT } from "../../../support/temporary.ts";

const A = party("a.test");
const B = party("b.test");
const C = party("c.test");
/** Says that an organisation does not manage its gateway. */
const unmanaged = (item: EvidenceItemBody): EvidenceItemBody => ({
  ...item,
  probe: "part_managed",
  vantage: "operator",
  subject: "gateway",
  verdict: "unknown",
  layer: "configuration",
  status: null,
  reason: "unmanaged",
});
const LEFT_ALONE = { probe: "left_alone", layer: "none", vantage: "nobody", verdict: "unknown" } as const;
const OTHER_DIGEST = `sha256:${"f".repeat(64)}`;

const reached = new Set<ReasonCode>();
after(() => {
  // Those of the exchange are reached by its own tests.
  const elsewhere = [
    "exchange_malformed",
    "exchange_from_another",
    "states_for_another",
    "statement_conflicts",
  ];
  const missed = Object.keys(REASONS).filter((code) => !reached.has(code as ReasonCode));
  assert.deepEqual(missed, elsewhere, "each reason is reached by a test here");
});

/** The reasons, each once, in the order told. */
function reasonsFor(bytes: Uint8Array, trust: Trust): ReasonCode[] {
  const { verified, problems } = verifyRecord(bytes, trust);
  assert.equal(verified, problems.length === 0);
  const reasons = [...new Set(problems.map(({ reason }) => reason))];
  for (const reason of reasons) reached.add(reason);
  return reasons;
}

const changed = async (changes: Changes) => {
  const { bytes, trust } = await removalOf(A, B, changes);
  return reasonsFor(bytes, trust);
};

/** Changes one stage of one organisation alone. */
const only =
  (organisation: string, stage: StageName, change: (predicate: StagePredicate) => Partial<StagePredicate>) =>
  (predicate: StagePredicate): StagePredicate =>
    predicate.organisation === organisation && predicate.stage === stage
      ? { ...predicate, ...change(predicate) }
      : predicate;

const completion = (change: (predicate: CompletionPredicate) => Partial<CompletionPredicate>): Changes => ({
  completion: (predicate) => ({ ...predicate, ...change(predicate) }),
});

const file = (change: (file: RecordFile) => unknown): Changes => ({ file: change });

describe("verifyRecord", () => {
  it("a complete record verifies, with what is proved, attested and missing [OFF-3]", async () => {
    const { bytes, trust } = await removalOf(A, B);
    const report = verifyRecord(bytes, trust);
    assert.deepEqual(report.problems, []);
    assert.equal(report.verified, true);
    assert.deepEqual(report.removal, {
      run: RUN,
      kind: "full",
      trigger: "contract_end",
      remover: "a.test",
      partner: "b.test",
      completedAt: minute(80),
    });
    assert.equal(report.statements, 13);
    assert.deepEqual(
      report.signers
        .map(({ organisation, statements }) => ({ organisation, statements }))
        .toSorted((l, r) => (l.organisation < r.organisation ? -1 : 1)),
      [
        { organisation: "a.test", statements: 13 },
        { organisation: "b.test", statements: 13 },
      ],
    );
    assert.ok(report.parts.every(({ complete }) => complete));
    assert.equal(report.parts.length, 6);
    assert.equal(report.outcome, "verified");
    assert.equal(report.proved.length, 46);
    assert.deepEqual(report.proved[2], {
      organisation: "a.test",
      stage: "a2a_stop",
      condition: "token_refused",
      seen: { operator: 2, partner: 1 },
    });
    assert.ok(report.attested.some(({ what }) => what === "backups have expired by 2027-02-21"));
    assert.deepEqual(
      report.missing.map(({ where }) => where),
      ["trust"],
    );
    const expect = { remover: "a.test", partner: "b.test", run: RUN };
    assert.deepEqual(verifyRecord(bytes, { ...trust, expect }).missing, []);
  });

  it("something out of reach may be waived with a signed reason, and is reported [OFF-3]", async () => {
    const entry = { subject: "!old:a.test", reason: "no_power", waived_by: null, waiver: null };
    const waived = { ...entry, waived_by: "security-owner", waiver: "room_is_empty" };
    const { bytes, trust } = await removalOf(A, B, {
      stage: only("a.test", "room", () => ({ out_of_reach: [entry] })),
      ...completion(() => ({ out_of_reach: [waived] })),
    });
    const report = verifyRecord(bytes, trust);
    assert.equal(report.verified, true);
    assert.deepEqual(report.missing.slice(1), [
      { where: "!old:a.test", what: "out of reach (no_power); waived by security-owner: room_is_empty" },
    ]);
  });

  it("a condition that does not apply to an organisation is attested, not proved", async () => {
    const noPins: Changes = {
      item: (item, organisation) =>
        organisation === "b.test" && item.probe === "card_trust"
          ? {
              ...{ ...item, probe: "agents_consumed", subject: null, layer: "registry" },
              reason: "no_agent_consumed",
            }
          : item,
      stage: (predicate) =>
        predicate.organisation === "b.test"
          ? { ...predicate, scope: { ...predicate.scope, pins: [] } }
          : predicate,
    };
    const { bytes, trust } = await removalOf(A, B, noPins);
    const report = verifyRecord(bytes, trust);
    assert.deepEqual(report.problems, []);
    assert.ok(
      report.attested.some(
        ({ stage, what }) => stage === "a2a_discovery" && what === "agent_card_untrusted does not apply",
      ),
    );
    assert.ok(
      !report.proved.some(
        ({ organisation, condition }) => organisation === "b.test" && condition === "agent_card_untrusted",
      ),
    );
  });

  it("a part that nobody manages leaves the record incomplete, and is never proved [ADO-1]", async () => {
    const without = (predicate: StagePredicate): StagePredicate =>
      predicate.organisation === "b.test"
        ? { ...predicate, scope: { ...predicate.scope, parts: ["homeserver", "bridge"] } }
        : predicate;
    const { bytes, trust } = await removalOf(A, B, {
      items: (items, organisation, stage) =>
        organisation === "b.test" && stage === "a2a_stop" ? items.slice(0, 1) : items,
      item: (item, organisation, stage) => {
        const isOfGateway = stage === "a2a_stop" || item.probe === "card_fetch";
        return organisation === "b.test" && isOfGateway ? unmanaged(item) : item;
      },
      stage: without,
    });
    const report = verifyRecord(bytes, trust);
    assert.deepEqual(report.problems, []);
    assert.deepEqual([report.outcome, report.verified], ["incomplete", false]);
    const listed = report.unmanaged.map(({ organisation, condition }) => `${organisation} ${condition}`);
    assert.deepEqual(listed, [
      "b.test in_force",
      "b.test partner_not_rendered",
      "b.test token_refused",
      "b.test invoke_refused",
      "b.test card_gone_or_refused",
    ]);
    assert.ok(
      !report.proved.some(
        ({ condition, organisation }) =>
          listed.includes(`${organisation} ${condition}`) && condition !== "in_force",
      ),
    );
  });

  it("a record in which the partner has shown nothing closed is unilateral [OFF-3]", async () => {
    const { bytes, trust } = await removalOf(A, B, {
      item: (item, organisation, stage) =>
        organisation === "b.test" && stage !== "data_duties"
          ? { ...item, probe: "nothing_there", layer: "registry", status: null, reason: "not_operated" }
          : item,
    });
    const report = verifyRecord(bytes, trust);
    assert.deepEqual(
      report.problems.map(({ reason }) => reason),
      ["unilateral"],
    );
    for (const { reason } of report.problems) reached.add(reason);
    assert.deepEqual([report.outcome, report.verified], ["unilateral", false]);
  });

  it("a partial removal leaves rooms, border and transport alone", async () => {
    const isLeft = (stage: StageName) => ["room", "policy_border", "transport"].includes(stage);
    const partial: Changes = {
      items: (items, _, stage) => (isLeft(stage) ? items.slice(0, 1) : items),
      item: (item, _, stage) => (isLeft(stage) ? { ...item, ...LEFT_ALONE } : item),
      stage: (predicate) => {
        const scope = { ...predicate.scope, rooms: null };
        return {
          ...{ ...predicate, kind: "partial", scope },
          ...(isLeft(predicate.stage) && { revision: null, render: null }),
        };
      },
      ...completion(() => ({ kind: "partial" })),
    };
    assert.deepEqual(await changed(partial), []);
  });

  const onFirst = (change: (envelope: RecordFile["completion"]) => unknown) =>
    file((record) => ({
      ...record,
      stages: record.stages.map((one, index) => (index === 0 ? change(one) : one)),
    }));

  /** Both organisations' signatures over any payload. */
  async function signedAs(payload: string) {
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

  const CASES: readonly (readonly [ReasonCode, string, Changes])[] = [
    ["record_malformed", "another schema", file((record) => ({ ...record, schema: "svc.other.v1" }))],
    ["record_malformed", "one member more", file((record) => ({ ...record, more: 1 }))],
    ["record_malformed", "no evidence at all", file(({ evidence: _, ...record }) => record)],
    ["record_malformed", "a list", file((record) => [record])],
    ["not_an_envelope", "no envelope", onFirst(() => null)],
    ["not_an_envelope", "an unknown member", onFirst((one) => ({ ...one, more: 1 }))],
    [
      "not_an_envelope",
      "a line break in base64",
      onFirst((one) => ({ ...one, payload: `${one.payload}\n` })),
    ],
    ["wrong_payload_type", "another type", onFirst((one) => ({ ...one, payloadType: "text/plain" }))],
    [
      "signature_missing",
      "one signature",
      onFirst((one) => ({ ...one, signatures: one.signatures.slice(0, 1) })),
    ],
    [
      "duplicate_signature",
      "one twice",
      onFirst(({ signatures: [first, second], ...one }) => ({ ...one, signatures: [first, first, second] })),
    ],
    [
      "signatures_out_of_order",
      "exchanged places",
      onFirst((one) => ({ ...one, signatures: one.signatures.toReversed() })),
    ],
    [
      "signature_invalid",
      "the signatures exchanged between the keys",
      onFirst(({ signatures: [first, second], ...one }) => ({
        ...one,
        signatures: [
          { ...first, sig: second?.sig },
          { ...second, sig: first?.sig },
        ],
      })),
    ],
    [
      "unknown_key",
      "the key IDs exchanged for unknown ones",
      onFirst((one) => ({
        ...one,
        signatures: one.signatures.map((s) => ({ ...s, keyid: `${s.keyid}x` })),
      })),
    ],
    [
      "signature_malformed",
      "raw r and s",
      onFirst(({ signatures: [first, second], ...one }) => ({
        ...one,
        signatures: [{ ...first, sig: Buffer.alloc(64, 7).toString("base64") }, second],
      })),
    ],
    ["subjects_differ", "a subject less", { stated: (one) => ({ ...one, subject: one.subject.slice(1) }) }],
    [
      "subjects_differ",
      "another digest",
      {
        completed: (one) => ({
          ...one,
          subject: one.subject.map(({ name }) => ({ name, digest: { sha256: "e".repeat(64) } })),
        }),
      },
    ],
    [
      "other_run",
      "one stage of another run",
      { stage: only("b.test", "room", () => ({ run: "f".repeat(32) })) },
    ],
    [
      "other_kind",
      "one stage of another kind",
      { stage: only("b.test", "room", () => ({ kind: "emergency" })) },
    ],
    [
      "kind_contradicts_trigger",
      "a planned emergency",
      {
        stage: (one) => ({ ...one, kind: "emergency" }),
        ...completion(() => ({ kind: "emergency", trigger: "planned_departure" })),
      },
    ],
    [
      "not_a_party",
      "a third organisation attests",
      completion(({ attestations: [first, ...rest] }) => ({
        attestations: first === undefined ? [] : [first, ...rest, { ...first, organisation: "c.test" }],
      })),
    ],
    [
      "chain_broken",
      "follows on from nothing",
      { stage: only("a.test", "transport", () => ({ previous: null })) },
    ],
    [
      "chain_broken",
      "follows on from another",
      { stage: only("a.test", "transport", () => ({ previous: OTHER_DIGEST })) },
    ],
    [
      "chain_broken",
      "the first follows on",
      { stage: only("a.test", "a2a_stop", () => ({ previous: OTHER_DIGEST })) },
    ],
    ["stage_out_of_place", "another position", { stage: only("a.test", "room", () => ({ position: 4 })) }],
    [
      "stage_out_of_place",
      "two stages exchanged",
      file((record) => ({
        ...record,
        stages: [...record.stages.slice(1, 2), ...record.stages.slice(0, 1), ...record.stages.slice(2)],
      })),
    ],
    [
      "condition_unproved",
      "a room in scope of which nothing was observed",
      {
        stage: only("a.test", "room", ({ scope }) => ({
          scope: { ...scope, rooms: [...(scope.rooms ?? []), "!another:a.test"] },
        })),
      },
    ],
    [
      "scope_malformed",
      "rooms of a plane that has none",
      { stage: only("a.test", "transport", ({ scope }) => ({ scope: { ...scope, rooms: [] } })) },
    ],
    [
      "scope_differs",
      "another policy before than in the stages around it",
      { stage: only("a.test", "room", ({ scope }) => ({ scope: { ...scope, policy: OTHER_DIGEST } })) },
    ],
    [
      "duties_have_no_plane",
      "a revision of duties",
      { stage: only("a.test", "data_duties", () => ({ revision: "a".repeat(40) })) },
    ],
    [
      "evidence_malformed",
      "a sentence in an item",
      file((record) => ({
        ...record,
        evidence: record.evidence.map((item, index) =>
          index === 3 ? { ...item, reason: "he said hello" } : item,
        ),
      })),
    ],
    [
      "evidence_malformed",
      "a member more",
      file((record) => ({
        ...record,
        evidence: record.evidence.map((item, index) => (index === 3 ? { ...item, more: 1 } : item)),
      })),
    ],
    [
      "evidence_altered",
      "another status",
      file((record) => ({
        ...record,
        evidence: record.evidence.map((item, index) => (index === 3 ? { ...item, status: 200 } : item)),
      })),
    ],
    [
      "evidence_out_of_order",
      "turned round",
      file((record) => ({ ...record, evidence: record.evidence.toReversed() })),
    ],
    [
      "evidence_out_of_order",
      "one twice",
      file(({ evidence, ...record }) => ({ ...record, evidence: [...evidence, ...evidence.slice(-1)] })),
    ],
    [
      "evidence_missing",
      "one left out",
      file(({ evidence, ...record }) => ({ ...record, evidence: evidence.slice(1) })),
    ],
    [
      "evidence_about_another",
      "about a third",
      {
        item: (item, organisation, stage) =>
          organisation === "b.test" && stage === "policy_border" && item.probe === "invite"
            ? { ...item, partner: "c.test" }
            : item,
      },
    ],
    [
      "evidence_of_another_plane",
      "from another plane",
      { item: (item) => (item.probe === "invite" ? { ...item, plane: "gateway" } : item) },
    ],
    [
      "evidence_out_of_time",
      "seen before",
      { item: (item) => (item.probe === "invite" ? { ...item, at: minute(-1) } : item) },
    ],
    [
      "evidence_out_of_time",
      "seen after",
      { item: (item) => (item.probe === "invite" ? { ...item, at: minute(500) } : item) },
    ],
    [
      "evidence_shows_nothing",
      "an answer that is not the one required",
      {
        item: (item) =>
          item.probe === "invite" && item.vantage === "partner" ? { ...item, probe: "invitation" } : item,
      },
    ],
    [
      "out_of_reach_dropped",
      "not in the completion",
      {
        stage: only("a.test", "room", () => ({
          out_of_reach: [{ subject: "!old:a.test", reason: "no_power", waived_by: "owner", waiver: "empty" }],
        })),
      },
    ],
    [
      "out_of_reach_not_waived",
      "nobody answers for it",
      completion(() => ({
        out_of_reach: [{ subject: "!x", reason: "gone", waived_by: null, waiver: null }],
      })),
    ],
    [
      "out_of_reach_not_waived",
      "no reason",
      completion(() => ({
        out_of_reach: [{ subject: "!x", reason: "gone", waived_by: "owner", waiver: null }],
      })),
    ],
    ["stage_not_bound", "not named", completion(({ stages }) => ({ stages: stages.slice(1) }))],
    [
      "bound_out_of_order",
      "stages turned round",
      completion(({ stages }) => ({ stages: stages.toReversed() })),
    ],
    [
      "bound_out_of_order",
      "evidence turned round",
      completion(({ evidence }) => ({ evidence: evidence.toReversed() })),
    ],
    ["evidence_not_bound", "not named", completion(({ evidence }) => ({ evidence: evidence.slice(1) }))],
    [
      "evidence_bound_but_absent",
      "an item of no stage",
      completion(({ evidence }) => ({ evidence: [...evidence, OTHER_DIGEST] })),
    ],
    ["revisions_differ", "one left out", completion(({ revisions }) => ({ revisions: revisions.slice(1) }))],
    [
      "revisions_differ",
      "another revision",
      completion(({ revisions }) => ({
        revisions: revisions.map((one) => ({ ...one, revision: "c".repeat(40) })),
      })),
    ],
    [
      "attestation_missing",
      "one owner",
      completion(({ attestations }) => ({ attestations: attestations.slice(1) })),
    ],
    [
      "attestation_repeated",
      "three owners",
      completion(({ attestations }) => ({ attestations: [...attestations, ...attestations.slice(0, 1)] })),
    ],
    [
      "static_tests_missing",
      "one tested",
      completion(({ static_tests }) => ({ static_tests: static_tests.slice(1) })),
    ],
    [
      "purge_not_shown",
      "no evidence",
      completion(({ duties }) => ({ duties: { ...duties, purge: { ...duties.purge, evidence: [] } } })),
    ],
    [
      "purge_not_shown",
      "evidence of something else",
      completion(({ duties }) => ({
        duties: { ...duties, purge: { ...duties.purge, evidence: [OTHER_DIGEST] } },
      })),
    ],
    [
      "owner_not_attested",
      "the partner has named another",
      completion(({ attestations }) => ({
        attestations: attestations.map((one) =>
          one.organisation === "b.test" ? { ...one, owner: "change-owner-8" } : one,
        ),
      })),
    ],
    [
      "owner_not_attested",
      "the partner has named nobody",
      { stage: only("b.test", "data_duties", () => ({ attested: ["backups_expire"] })) },
    ],
    [
      "purge_not_waived",
      "waived without a reason",
      completion(({ duties }) => ({
        duties: { ...duties, purge: { state: "waived", evidence: [], waiver: null } },
      })),
    ],
    [
      "retention_undecided",
      "kept for ever",
      completion(({ duties }) => ({ duties: { ...duties, retention: { state: "kept", until: null } } })),
    ],
    [
      "readmission_undecided",
      "by nobody",
      completion(({ readmission }) => ({ readmission: { ...readmission, owner: null } })),
    ],
    [
      "readmission_undecided",
      "on no condition",
      completion(({ readmission }) => ({ readmission: { ...readmission, conditions: [] } })),
    ],
    ["times_out_of_order", "completed first", completion(() => ({ completed_at: minute(1) }))],
    [
      "times_out_of_order",
      "attested before the end",
      completion(({ attestations }) => ({
        attestations: attestations.map((one) => ({ ...one, attested_at: minute(3) })),
      })),
    ],
    [
      "times_out_of_order",
      "a stage closed before the one before it",
      {
        item: (item, organisation, stage) =>
          organisation === "a.test" && stage === "room" ? { ...item, at: minute(2) } : item,
        stage: only("a.test", "room", () => ({ opened_at: minute(1), closed_at: minute(3) })),
      },
    ],
  ];

  for (const [reason, what, changes] of CASES) {
    it(`${reason}: ${what} [OFF-3]`, async () => {
      assert.deepEqual(await changed(changes), [reason]);
    });
  }

  it("stage_not_closed: a partial removal whose remover manages none of what it closes [OFF-5]", async () => {
    const isClosed = (stage: StageName) => stage === "a2a_stop" || stage === "a2a_discovery";
    const isLeft = (stage: StageName) => !isClosed(stage) && stage !== "data_duties";
    const reasons = await changed({
      items: (items, organisation, stage) =>
        isLeft(stage) || (organisation === "a.test" && isClosed(stage)) ? items.slice(0, 1) : items,
      item: (item, organisation, stage) => {
        if (isLeft(stage)) return { ...item, ...LEFT_ALONE, reason: "left_alone_by_partial" };
        return organisation === "a.test" && isClosed(stage) ? unmanaged(item) : item;
      },
      stage: (predicate) => {
        const { scope, stage, organisation } = predicate;
        const parts: typeof scope.parts = organisation === "a.test" ? ["homeserver"] : scope.parts;
        return {
          ...{ ...predicate, kind: "partial", scope: { ...scope, parts, rooms: null } },
          ...(isLeft(stage) && { revision: null, render: null }),
        };
      },
      ...completion(() => ({ kind: "partial" })),
    });
    assert.deepEqual(reasons, ["stage_not_closed"]);
  });

  it("one fault is reported with its consequences and nothing else [OFF-3]", async () => {
    const two: readonly (readonly [readonly ReasonCode[], Changes])[] = [
      // The stage is not there, so what it rested on is superfluous and the completion binds what is absent.
      [
        [
          "stage_missing",
          "stage_bound_but_absent",
          "evidence_bound_but_absent",
          "revisions_differ",
          "evidence_extra",
        ],
        file(({ stages, ...record }) => ({ ...record, stages: stages.filter((_, index) => index !== 5) })),
      ],
      [
        ["stage_repeated"],
        file(({ stages, ...record }) => ({ ...record, stages: [...stages, ...stages.slice(-3, -2)] })),
      ],
      [
        ["condition_unproved", "evidence_shows_nothing"],
        { item: (item) => (item.probe === "federation_send" ? { ...item, verdict: "unknown" } : item) },
      ],
      [
        ["condition_refuted", "evidence_shows_nothing"],
        { item: (item) => (item.probe === "card_trust" ? { ...item, verdict: "open" } : item) },
      ],
      // Nothing names the revision that was in force, so nothing shows that it was.
      ...(["revision", "render"] as const).map((name): readonly [readonly ReasonCode[], Changes] => [
        ["revision_missing", "condition_unproved", "evidence_shows_nothing"],
        { stage: only("a.test", "room", () => ({ [name]: null })) },
      ]),
      [
        ["condition_unproved", "evidence_shows_nothing"],
        { item: (item) => (item.probe === "whitelist" ? { ...item, vantage: "witness" } : item) },
      ],
      [
        ["times_out_of_order", "evidence_out_of_time", "condition_unproved"],
        { stage: only("a.test", "room", ({ closed_at }) => ({ opened_at: minute(36), closed_at })) },
      ],
      [
        ["evidence_malformed"],
        // A number beyond what a status can be; its digest is right.
        file((record) => ({
          ...record,
          evidence: record.evidence.map((item) => ({ ...item, layer: "" })),
        })),
      ],
    ];
    for (const [reasons, changes] of two) {
      assert.deepEqual((await changed(changes)).toSorted(), reasons.toSorted());
    }
  });

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
    const { fileText } = await import("../../../../src/records/format/record-file.ts");
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
    const { fileText } = await import("../../../../src/records/format/record-file.ts");
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
    const { fileText } = await import("../../../../src/records/format/record-file.ts");
    const mixed = { ...here.file, stages: [...there.file.stages.slice(0, 1), ...here.file.stages.slice(1)] };
    const parties = [A.trusted, B.trusted, C.trusted];
    const reasons = reasonsFor(Buffer.from(fileText(mixed)), { parties });
    assert.ok(reasons.includes("other_parties") && reasons.includes("stage_not_bound"), reasons.join(", "));
    assert.ok(reasonsFor(Buffer.from(fileText(mixed)), here.trust).includes("unknown_key"));
  });

  it("a record is refused when an organisation removes itself or a third one states a part [OFF-3]", async () => {
    const self = await removalOf(A, A);
    assert.ok(reasonsFor(self.bytes, { parties: [A.trusted] }).includes("one_party"));
    assert.ok(
      (await changed({ stage: only("b.test", "room", () => ({ organisation: "c.test" })) })).includes(
        "not_a_party",
      ),
    );
  });

  it("a file with ambiguous JSON or in another form than the canonical one is refused [OFF-3]", async () => {
    const { bytes, trust } = await removalOf(A, B);
    const text = bytes.toString("utf8");
    const verifyText = (changedText: string) => reasonsFor(Buffer.from(changedText), trust);
    assert.deepEqual(verifyText(text.replace('"schema":', '"schema":"x","schema":')), ["record_unreadable"]);
    assert.deepEqual(verifyText(text.slice(0, -9)), ["record_unreadable"]);
    assert.deepEqual(verifyText(`\ufeff${text}`), ["record_unreadable"]);
    assert.deepEqual(verifyText(""), ["record_unreadable"]);
    assert.deepEqual(reasonsFor(Buffer.concat([Buffer.from([0xff]), bytes]), trust), ["record_unreadable"]);
    assert.deepEqual(verifyText(text.trimEnd()), ["record_reformatted"]);
    assert.deepEqual(verifyText(JSON.stringify(JSON.parse(text), null, 2)), ["record_reformatted"]);
    const spaced = text.replace(/"duration_ms":(\d+)/, '"duration_ms":$1.0');
    assert.deepEqual(verifyText(spaced), ["record_reformatted"]);
  });

  it("hundreds of thousands of broken items are all reported [OFF-3]", async () => {
    const { file: record, trust } = await removalOf(A, B);
    const evidence = Array.from({ length: RECORD_EVIDENCE_MAX }, () => null);
    const reasons = reasonsFor(Buffer.from(fileText({ ...record, evidence })), trust);
    assert.deepEqual(reasons, ["evidence_malformed", "evidence_out_of_order", "evidence_missing"]);
  });

  it("more statements or items than a record can have are refused before any is read [OFF-3]", async () => {
    const { file: record, trust } = await removalOf(A, B);
    const [stage] = record.stages;
    const stages = Array.from({ length: RECORD_STAGES_MAX + 1 }, () => stage);
    const evidence = Array.from({ length: RECORD_EVIDENCE_MAX + 1 }, () => null);
    for (const [hostile, detail] of [
      [{ stages }, "65 stages"],
      [{ evidence }, "200001 items"],
    ] as const) {
      const bytes = Buffer.from(fileText({ ...record, ...hostile }));
      assert.deepEqual(reasonsFor(bytes, trust), ["record_too_many"]);
      const [problem] = verifyRecord(bytes, trust).problems;
      assert.equal(problem?.detail, detail);
    }
  });

  it("a purge is shown by deletions, not by counts, promises or other duties [OFF-3]", async () => {
    const as = (probe: string, more: Partial<EvidenceItemBody> = {}) =>
      changed({
        item: (item) => (item.probe === "purge_media" ? { ...item, probe, ...more } : item),
      });
    assert.deepEqual(await as("purge_room"), []);
    for (const probe of ["rows_before", "history_kept"]) {
      assert.deepEqual(await as(probe), ["condition_unproved", "purge_of_another_kind"], probe);
    }
    const kept = await as("purge_media", { reason: "kept_by_contract" });
    assert.deepEqual(kept, ["condition_unproved", "purge_of_another_kind"]);
    const { file: record } = await removalOf(A, B);
    const theirs = record.evidence.filter(
      ({ probe, partner }) => probe === "purge_media" && partner === "a.test",
    );
    const evidence = theirs.map(({ digest }) => digest);
    const byPartner = completion(({ duties }) => ({
      duties: { ...duties, purge: { ...duties.purge, evidence } },
    }));
    assert.ok(evidence.length > 0);
    assert.deepEqual(
      await changed(byPartner),
      ["purge_of_another_kind"],
      "the partner's purge is not the remover's",
    );
  });

  it("several faults are reported at once [OFF-3]", async () => {
    const reasons = await changed({
      stage: only("a.test", "room", () => ({ attested: [], opened_at: minute(36) })),
      completion: (predicate) => ({ ...predicate, attestations: [], static_tests: [] }),
      file: (record) => ({ ...record, evidence: record.evidence.slice(1) }),
    });
    assert.deepEqual(reasons.toSorted(), [
      "attestation_missing",
      "condition_unproved",
      "evidence_missing",
      "evidence_out_of_time",
      "static_tests_missing",
      "times_out_of_order",
    ]);
  });

  it("the reference page lists every reason with the program's sentence and hint", () => {
    const page = readFileSync(join(ROOT, "docs", "reference", "offboarding-records.md"), "utf8");
    for (const [code, { sentence, hint }] of Object.entries(REASONS)) {
      assert.ok(
        page.includes(`| \`${code}\` | ${sentence} | ${hint} |`),
        `${code}: | \`${code}\` | ${sentence} | ${hint} |`,
      );
    }
  });

  it("a statement has the same bytes whichever organisation signs first", async () => {
    const { stages, trust }: Removal = await removalOf(A, B);
    const [first] = stages;
    assert.ok(first !== undefined);
    const one = await addSignature(await signStatement(first, A.signer), B.signer);
    const other = await addSignature(await signStatement(first, B.signer), A.signer);
    assert.deepEqual(
      one.signatures.map(({ keyid }) => keyid),
      other.signatures.map(({ keyid }) => keyid),
    );
    assert.equal(trust.parties.length, 2);
  });
});
