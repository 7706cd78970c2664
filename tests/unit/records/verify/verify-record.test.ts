// Every way in which a record is not whole or not genuine, each with its own reason and nothing else.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { EvidenceItemBody } from "../../../../src/records/format/evidence-item.ts";
import { RECORD_EVIDENCE_MAX, RECORD_STAGES_MAX } from "../../../../src/records/format/fields.ts";
import type { StageName } from "../../../../src/records/format/removal-stages.ts";
import { fileText, type StagePredicate } from "../../../../src/records/format/statements.ts";
import { addSignature } from "../../../../src/records/sign/signer.ts";
import { REASONS, type ReasonCode } from "../../../../src/records/verify/reasons.ts";
import { verifyRecord } from "../../../../src/records/verify/verify-record.ts";
import {
  type Changes,
  itemsOf,
  minute,
  type Removal,
  RUN,
  removalOf,
  signStatement,
} from "../../../support/removal.ts";
import { ROOT } from "../../../support/temporary.ts";
import {
  A,
  B,
  changed,
  completion,
  file,
  LEFT_ALONE,
  OTHER_DIGEST,
  only,
  reached,
  reasonsFor,
  unmanaged,
} from "./changed-records.ts";
import { CASES } from "./single-faults.ts";

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
      observed: { operator: 2, partner: 1 },
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
    const out_of_reach = [
      { subject: "!old:a.test", reason: "no_power", waived_by: "security-owner", waiver: "room_is_empty" },
    ];
    const { bytes, trust } = await removalOf(A, B, {
      stage: only("a.test", "room", () => ({ out_of_reach })),
      ...completion(() => ({ out_of_reach })),
    });
    const report = verifyRecord(bytes, trust);
    assert.equal(report.verified, true);
    assert.deepEqual(report.missing.slice(1), [
      {
        where: "a.test/room",
        what: "!old:a.test: out of reach (no_power); waived by security-owner: room_is_empty",
      },
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
    // Agents may be withdrawn between its stages; what is managed, and whose client it is, stays the same.
    const scoped = (scope: Partial<StagePredicate["scope"]>): Changes => ({
      ...partial,
      stage: (predicate) => {
        const changed = partial.stage?.(predicate) ?? predicate;
        const isMeant = predicate.organisation === "a.test" && isLeft(predicate.stage);
        return isMeant ? { ...changed, scope: { ...changed.scope, ...scope } } : changed;
      },
    });
    assert.deepEqual(await changed(scoped({ agents: [] })), []);
    assert.deepEqual(await changed(scoped({ client: "another" })), ["scope_differs"]);
    assert.deepEqual(await changed(scoped({ parts: ["homeserver"] })), ["scope_differs"]);
    const halfNamed = only("a.test", "room", () => ({ render: OTHER_DIGEST }));
    const stage = (predicate: StagePredicate) => halfNamed(partial.stage?.(predicate) ?? predicate);
    assert.deepEqual(await changed({ ...partial, stage }), ["revision_missing"]);
  });

  for (const [reason, what, changes] of CASES) {
    it(`${reason}: ${what} [OFF-3]`, async () => {
      assert.deepEqual(await changed(changes), [reason]);
    });
  }

  it("scope_malformed: a partner that says it manages no homeserver leaves no record incomplete [OFF-5]", async () => {
    const isLeft = (organisation: string, stage: StageName) =>
      organisation === "b.test" && stage !== "a2a_stop" && stage !== "a2a_discovery";
    const reasons = await changed({
      items: (items, organisation, stage) => (isLeft(organisation, stage) ? items.slice(0, 1) : items),
      item: (item, organisation, stage) =>
        isLeft(organisation, stage) ? { ...unmanaged(item), subject: "homeserver" } : item,
      stage: (predicate) =>
        predicate.organisation === "b.test"
          ? { ...predicate, scope: { ...predicate.scope, parts: ["bridge", "gateway"] } }
          : predicate,
    });
    assert.deepEqual(reasons, ["scope_malformed"]);
  });

  it("a partial removal from a partner that manages its homeserver alone is incomplete [ADO-1]", async () => {
    const left: readonly StageName[] = ["room", "policy_border", "transport"];
    const isUnmanaged = (organisation: string, stage: StageName) =>
      organisation === "b.test" && ["a2a_stop", "a2a_discovery"].includes(stage);
    const { bytes, trust } = await removalOf(A, B, {
      items: (items, organisation, stage) =>
        left.includes(stage) || isUnmanaged(organisation, stage) ? items.slice(0, 1) : items,
      item: (item, organisation, stage) => {
        if (left.includes(stage)) return { ...item, ...LEFT_ALONE };
        return isUnmanaged(organisation, stage) ? unmanaged(item) : item;
      },
      stage: (predicate) => {
        const { organisation, stage, scope } = predicate;
        const ofPartner = organisation === "b.test" ? { parts: ["homeserver"] as const } : {};
        const isClosed = !left.includes(stage) && !isUnmanaged(organisation, stage);
        return {
          ...{ ...predicate, kind: "partial", scope: { ...scope, rooms: null, ...ofPartner } },
          ...(isClosed ? {} : { revision: null, render: null }),
        } as StagePredicate;
      },
      ...completion(() => ({ kind: "partial" })),
    });
    const report = verifyRecord(bytes, trust);
    assert.deepEqual([report.problems, report.outcome], [[], "incomplete"]);
  });

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
        ["revision_missing", "condition_unproved", "evidence_shows_nothing"],
        {
          stage: only("b.test", "room", () => ({ render: null })),
          item: (item, organisation, stage) =>
            organisation === "b.test" && stage === "room" ? { ...item, verdict: "unknown" } : item,
        },
      ],
      [
        ["scope_malformed", "scope_differs"],
        {
          stage: only("b.test", "data_duties", ({ scope }) => ({
            scope: { ...scope, parts: ["homeserver", "bridge", "bridge"] },
          })),
        },
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

  it("what holds only because all of it is waived is left open, and not among what is proved [OFF-5]", async () => {
    const rooms = [
      ...new Set(
        itemsOf("a.test", "b.test", "room").flatMap(({ subject, probe }) =>
          probe.startsWith("room_") && subject !== null ? [subject] : [],
        ),
      ),
    ];
    const isRoomOfA = (organisation: string, stage: string) => organisation === "a.test" && stage === "room";
    const waiving = async (waived: readonly string[]) => {
      const out_of_reach = waived.map((subject) => ({
        ...{ subject, reason: "no_power", waived_by: "staff-1", waiver: "accepted" },
      }));
      const { bytes, trust } = await removalOf(A, B, {
        items: (all, organisation, stage) =>
          isRoomOfA(organisation, stage) ? all.filter(({ vantage }) => vantage === "operator") : all,
        item: (item, organisation, stage) => {
          if (!isRoomOfA(organisation, stage)) return item;
          if (item.probe === "reconciled") {
            const references = [...item.references, ...waived];
            return { ...item, verdict: "unknown", reason: "incomplete", references };
          }
          return waived.includes(item.subject ?? "") ? { ...item, verdict: "open" } : item;
        },
        stage: only("a.test", "room", () => ({ out_of_reach })),
        completion: (predicate) => ({ ...predicate, out_of_reach }),
      });
      const { outcome, proved, missing, waived: counted } = verifyRecord(bytes, trust);
      assert.deepEqual([outcome, counted], ["verified", waived.length]);
      return {
        proved: proved.filter((one) => isRoomOfA(one.organisation, one.stage)),
        notShown: missing.flatMap(({ where, what }) =>
          where === "a.test/room" && !what.includes("waived by")
            ? [what.replace(/ is not shown: .*/, "")]
            : [],
        ),
      };
    };
    const all = await waiving(rooms);
    assert.deepEqual(all.proved, []);
    assert.deepEqual(all.notShown, ["in_force", "acl_excludes_partner", "enforcement_holds", "members_gone"]);
    const one = await waiving(rooms.slice(0, 1));
    assert.deepEqual(
      one.proved.map(({ condition, observed }) => [condition, observed]),
      ["acl_excludes_partner", "enforcement_holds", "members_gone"].map((condition) => [
        condition,
        { operator: rooms.length - 1 },
      ]),
    );
    assert.deepEqual(one.notShown, ["in_force"]);
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
