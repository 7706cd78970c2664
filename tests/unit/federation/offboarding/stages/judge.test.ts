// When a stage's exit conditions hold: what nobody saw closed is not closed.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { allHold, judgeStage } from "../../../../../src/federation/offboarding/stages/judge.ts";
import type { Observation } from "../../../../../src/federation/offboarding/stages/observation.ts";
import { Partner } from "../../../../../src/federation/registry/partner.ts";
import {
  type EvidenceItem,
  type EvidenceItemBody,
  evidenceItem,
} from "../../../../../src/records/format/evidence-item.ts";
import {
  CONDITIONS_OF_STAGE,
  PLANE_OF_STAGE,
  STAGE_NAMES,
  type StageName,
} from "../../../../../src/records/format/stages.ts";

const POLICY = `sha256:${"b".repeat(64)}`;
const STARTED = "2026-01-01T00:00:00.000Z";

function item(probe: string, more: Partial<EvidenceItemBody> = {}): EvidenceItem {
  return evidenceItem({
    schema: "svc.federation.evidence_item.v1",
    plane: "gateway",
    partner: "b.test",
    probe,
    vantage: "operator",
    subject: null,
    verdict: "closed",
    layer: "test",
    status: null,
    reason: null,
    references: [],
    at: STARTED,
    duration_ms: null,
    ...more,
  });
}

/** Of each stage, what is enough. */
const ENOUGH: Readonly<Record<StageName, readonly EvidenceItem[]>> = {
  a2a_stop: ["reconciled", "render", "callers_in_force", "issuer_client", "token_request", "invoke"].map(
    (probe) => item(probe),
  ),
  a2a_discovery: [item("reconciled"), item("card_fetch", { subject: "docs-qa" }), item("card_trust")],
  room: [
    item("reconciled"),
    item("room_acl", { subject: "!r:a" }),
    item("room_enforcement", { subject: "!r:a" }),
  ],
  policy_border: [
    item("reconciled"),
    item("policy_in_force", { references: [POLICY, `started_at=${STARTED}`] }),
    item("policy_check"),
    item("violation"),
  ],
  transport: ["reconciled", "whitelist", "federation_send"].map((probe) => item(probe)),
  data_duties: [item("purge_media"), item("duties"), item("check_federation")],
};

function seen(stage: StageName, change: Partial<Observation> = {}): Observation {
  const plane = PLANE_OF_STAGE[stage];
  const partner = Partner.parse({
    version: 1,
    serverName: "b.test",
    classification: "internal",
    azp: "b-bridge",
    issuer: "https://b.test",
    planes: { transport: "closed", rooms: "closed", border: "closed", card: "closed", gateway: "closed" },
    gateway: { invokes: ["docs-qa"], clientSecret: { file: "client-secrets/b" } },
    card: {
      consumes: {
        "b-docs-qa": {
          cardUrl: "https://b.test/card",
          cardIdentity: {
            keyId: "b",
            jwk: {
              kty: "EC",
              crv: "P-256",
              x: "2UNDKGmCLS_fbrtafEP3pkRTUhppoOIHI9S9Ne_WTOU",
              y: "LQ-WSL4W6OKCtF4C9Z_u1hCcXEebXK8pDgT1Uxy08Ls",
            },
          },
          credentials: {
            tokenEndpoint: "https://b.test/token",
            clientId: "a",
            clientSecret: { file: "client-secrets/a" },
            resource: "https://b.test",
          },
        },
      },
    },
  });
  return {
    stage,
    plane,
    partner,
    runs: { gateway: true, bridge: true },
    applied: { outcome: "in_force", reason: null },
    drift: [],
    items: ENOUGH[stage],
    outOfReach: [],
    fromOutside: true,
    policyBefore: { digest: `sha256:${"a".repeat(64)}`, excluded: false },
    startedBefore: STARTED,
    duties: plane === null ? { known: true, purgeWaived: false } : undefined,
    staticProblems: plane === null ? [] : undefined,
    ...change,
  };
}

describe("judgeStage", () => {
  for (const stage of STAGE_NAMES) {
    it(`${stage} holds by what it needs, and by nothing less [OFF-2]`, () => {
      const judged = judgeStage(seen(stage));
      assert.ok(allHold(judged), JSON.stringify(judged));
      const named = judged.map(({ condition }) => condition);
      for (const condition of CONDITIONS_OF_STAGE[stage]) assert.ok(named.includes(condition), condition);
      ENOUGH[stage].forEach((one, index) => {
        const without = ENOUGH[stage].toSpliced(index, 1);
        const { digest: _, ...body } = one;
        const changed = (verdict: "open" | "unknown") =>
          without.toSpliced(index, 0, evidenceItem({ ...body, verdict }));
        const hold = (items: readonly EvidenceItem[]) => allHold(judgeStage(seen(stage, { items })));
        assert.equal(hold(changed("open")), false, `${one.probe} open`);
        assert.equal(hold(changed("unknown")), false, `${one.probe} unknown`);
        // What is not asked for again elsewhere may be missing only where its room's ACL says the same.
        if (one.probe !== "room_enforcement" && one.probe !== "room_acl") {
          assert.equal(hold(without), false, `without ${one.probe}`);
        }
      });
    });
  }

  it("judgeStage names the probe, the finding and the hint of a condition that does not hold [OFF-2]", () => {
    for (const stage of STAGE_NAMES) {
      for (const items of [
        [],
        ENOUGH[stage].map(({ digest: _, ...body }) => evidenceItem({ ...body, verdict: "open" })),
      ]) {
        for (const { verdict, probe, found, hint } of judgeStage(seen(stage, { items }))) {
          if (verdict === "met" || verdict === "not_applicable") continue;
          assert.ok(found !== "" && hint !== "", `${stage} ${probe}: ${found}; ${hint}`);
        }
      }
    }
  });

  it("a2a_stop is not applicable to a partner that may invoke nothing, unless its client is seen open [OFF-2]", () => {
    const { gateway: _, ...partner } = seen("a2a_stop").partner ?? assert.fail();
    const verdicts = (client: "closed" | "open") => {
      const items = [item("nothing_there"), item("issuer_client", { verdict: client }), item("reconciled")];
      const judged = judgeStage(seen("a2a_stop", { partner, items }));
      return new Map(judged.map(({ condition, verdict }) => [condition, verdict])).get("token_refused");
    };
    assert.deepEqual([verdicts("closed"), verdicts("open")], ["not_applicable", "not_met"]);
  });

  it("judgeStage accepts a card that stays for others when its use was observed to be refused [OFF-2]", () => {
    const staying = [
      item("reconciled"),
      item("card_trust"),
      item("card_fetch", { subject: "docs-qa", verdict: "open", reason: "consumed_by_others" }),
      item("card_fetch", { subject: "docs-qa", verdict: "open", reason: "published", vantage: "partner" }),
    ];
    const use = (verdict: "closed" | "open") => item("card_use", { subject: "docs-qa", verdict });
    const verdicts = (items: readonly EvidenceItem[]) =>
      new Map(judgeStage(seen("a2a_discovery", { items })).map((one) => [one.condition, one.verdict]));
    const good = verdicts([...staying, use("closed")]);
    assert.deepEqual([good.get("card_gone"), good.get("use_refused")], ["not_applicable", "met"]);
    assert.equal(verdicts([...staying, use("open")]).get("use_refused"), "not_met");
    // A card that is public for nobody else is a leak.
    const leak = staying.map(({ digest: _, ...body }) =>
      evidenceItem({ ...body, reason: body.reason === "consumed_by_others" ? "card_public" : body.reason }),
    );
    assert.equal(verdicts(leak).get("card_gone"), "not_met");
  });

  it("judgeStage keeps a waiver when a purge had nothing to delete [OFF-2]", () => {
    const waiver = item("purge_waived", { reason: "no_data_kept" });
    const kept = [
      item("purge_media", { reason: "kept_by_contract" }),
      item("backup_expiry", { vantage: "nobody" }),
    ];
    const rest = [item("duties"), item("check_federation")];
    const deletion = (items: readonly EvidenceItem[], purgeWaived: boolean) => {
      const change = { items: [...items, ...rest], duties: { known: true, purgeWaived } as const };
      const found = judgeStage(seen("data_duties", change)).find(
        ({ condition }) => condition === "deletion_recorded",
      );
      return [found?.verdict, found?.evidence];
    };
    assert.deepEqual(deletion([waiver], true), ["not_applicable", [waiver.digest]]);
    assert.deepEqual(deletion([...kept, waiver], true), ["not_applicable", [waiver.digest]]);
    assert.equal(deletion(kept, false)[0], "not_met", "what is kept was not deleted");
  });

  it("judgeStage refuses a plane that was reopened, changed by hand or not applied [OFF-2]", () => {
    const inForce = (change: Partial<Observation>) =>
      judgeStage(seen("transport", change)).find(({ condition }) => condition === "in_force");
    const { partner } = seen("transport");
    assert.ok(partner !== undefined);
    const opened = { ...partner, planes: { ...partner.planes, transport: "open" as const } };
    assert.match(inForce({ partner: opened })?.found ?? "", /declares the transport plane open/);
    assert.match(inForce({ partner: undefined })?.found ?? "", /no entry/);
    const drift = [{ plane: "transport", subject: "homeserver.yaml", kind: "edited", found: null }] as const;
    assert.match(inForce({ drift })?.found ?? "", /changed by hand/);
    // As behind a pass that a newer revision has overtaken: of what was applied before, it says nothing.
    const overtaken = { applied: null, items: [] };
    assert.equal(inForce(overtaken)?.found, "the transport plane is not applied at this revision");
    // Containment closes planes for a while; a removal closes them for good.
    const contained = {
      ...partner,
      contained: true,
      planes: { ...partner.planes, gateway: "open" as const },
    };
    const judged = judgeStage(seen("a2a_stop", { partner: contained }));
    assert.equal(judged.find(({ condition }) => condition === "in_force")?.verdict, "not_met");
  });

  it("judgeStage refuses an unchanged policy digest, unless the old policy excluded the partner already [OFF-2]", () => {
    const changed = (excluded: boolean) =>
      judgeStage(seen("policy_border", { policyBefore: { digest: POLICY, excluded } })).find(
        ({ condition }) => condition === "policy_digest_changed",
      )?.verdict;
    assert.deepEqual([changed(false), changed(true)], ["not_met", "met"]);
  });
});
