// Records that are whole and genuine but for one fault, and the reason by which each is refused. Data.

import { isOfPurge } from "../../../../src/records/format/evidence-item.ts";
import type { OutOfReachEntry } from "../../../../src/records/format/statements.ts";
import type { ReasonCode } from "../../../../src/records/verify/reasons.ts";
import { type Changes, minute } from "../../../support/removal.ts";
import { completion, file, OTHER_DIGEST, onFirst, only } from "./changed-records.ts";

const yearBefore = (at: string) => new Date(Date.parse(at) - 365 * 86_400_000).toISOString();

const WAIVED = { subject: "!old:b.test", reason: "no_power", waived_by: "owner", waiver: "empty" };

/** The partner lists a room as out of reach, and the completion the same unless it is told what. */
function outOfReach(
  change: Partial<OutOfReachEntry>,
  listed: readonly OutOfReachEntry[] = [{ ...WAIVED, ...change }],
): Changes {
  return {
    stage: only("b.test", "room", () => ({ out_of_reach: [{ ...WAIVED, ...change }] })),
    ...completion(() => ({ out_of_reach: [...listed] })),
  };
}

export const CASES: readonly (readonly [ReasonCode, string, Changes])[] = [
  ["record_malformed", "another schema", file((record) => ({ ...record, schema: "svc.other.v1" }))],
  ["record_malformed", "one member more", file((record) => ({ ...record, more: 1 }))],
  ["record_malformed", "no evidence at all", file(({ evidence: _, ...record }) => record)],
  ["record_malformed", "a list", file((record) => [record])],
  ["not_an_envelope", "no envelope", onFirst(() => null)],
  ["not_an_envelope", "an unknown member", onFirst((one) => ({ ...one, more: 1 }))],
  ["not_an_envelope", "a line break in base64", onFirst((one) => ({ ...one, payload: `${one.payload}\n` }))],
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
    "trigger_differs",
    "the completion names another trigger than the partner has stated",
    { stage: only("b.test", "a2a_stop", () => ({ attested: ["trigger:planned_departure"] })) },
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
  ["out_of_reach_dropped", "not in the completion", outOfReach({}, [])],
  [
    "out_of_reach_not_stated",
    "something that no stage lists",
    completion(() => ({ out_of_reach: [WAIVED] })),
  ],
  [
    "out_of_reach_not_stated",
    "another waiver besides",
    outOfReach({}, [WAIVED, { ...WAIVED, waived_by: "partner-ciso", waiver: "risk_accepted" }]),
  ],
  ["out_of_reach_not_waived", "nobody answers for it", outOfReach({ waived_by: null, waiver: null })],
  ["out_of_reach_not_waived", "no reason", outOfReach({ waiver: null })],
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
    { stage: only("b.test", "data_duties", () => ({ attested: ["check:federation"] })) },
  ],
  [
    "static_test_not_attested",
    "the partner has stated another",
    completion(({ static_tests }) => ({
      static_tests: static_tests.map((one) => ({ ...one, command: "penetration:passed" })),
    })),
  ],
  [
    "purge_not_waived",
    "waived without a reason",
    completion(({ duties }) => ({
      duties: { ...duties, purge: { state: "waived", evidence: [], waiver: null } },
    })),
  ],
  [
    "purge_not_waived",
    "waived with a reason that no item of the data duties has",
    completion(({ duties }) => ({
      duties: { ...duties, purge: { state: "waived", evidence: [], waiver: "nothing_was_stored" } },
    })),
  ],
  [
    "purge_not_waived",
    "waived with a reason that the partner has for what it holds of the remover",
    {
      items: (items, organisation, stage) =>
        organisation === "b.test" && stage === "data_duties"
          ? items.filter((one) => !isOfPurge(one) || one.probe === "purge_media")
          : items,
      item: (item, organisation) =>
        organisation === "b.test" && item.probe === "purge_media"
          ? { ...item, probe: "purge_waived", layer: "private_record", reason: "nothing_was_stored" }
          : item,
      ...completion(({ duties }) => ({
        duties: { ...duties, purge: { state: "waived", evidence: [], waiver: "nothing_was_stored" } },
      })),
    },
  ],
  [
    "retention_undecided",
    "kept for ever",
    {
      ...completion(({ duties }) => ({ duties: { ...duties, retention: { state: "kept", until: null } } })),
      stage: only("a.test", "data_duties", ({ attested }) => ({
        attested: attested.map((word) => (word.startsWith("retention:") ? "retention:kept" : word)),
      })),
    },
  ],
  ...["retention:ended", "backups_expire_by:2026-12-31"].map(
    (word) =>
      [
        "duties_differ",
        `the remover's data duties say ${word}`,
        { stage: only("a.test", "data_duties", ({ attested }) => ({ attested: [...attested, word] })) },
      ] as const,
  ),
  ...["retention:", "backups_expire_by:"].map(
    (start) =>
      [
        "duties_differ",
        `the remover's data duties say nothing of ${start}`,
        {
          stage: only("a.test", "data_duties", ({ attested }) => ({
            attested: attested.filter((word) => !word.startsWith(start)),
          })),
        },
      ] as const,
  ),
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
    "the partner's part is of an earlier removal",
    {
      item: (item, organisation) => (organisation === "b.test" ? { ...item, at: yearBefore(item.at) } : item),
      stage: (one) =>
        one.organisation === "b.test"
          ? { ...one, opened_at: yearBefore(one.opened_at), closed_at: yearBefore(one.closed_at) }
          : one,
    },
  ],
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
