// Stage 4 where the transport was cut before it: nothing that the border could deny reaches it any more.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { borderRules } from "../../../../../src/federation/offboarding/stages/exit-conditions.ts";
import type { Observation } from "../../../../../src/federation/offboarding/stages/observation.ts";
import { type EvidenceItemBody, evidenceItem } from "../../../../../src/records/format/evidence-item.ts";

function item(probe: string, more: Partial<EvidenceItemBody> = {}) {
  return evidenceItem({
    ...{ schema: "svc.federation.evidence_item.v1", plane: "border", partner: "b.test", probe },
    ...{ vantage: "operator", subject: null, verdict: "closed", layer: "border", status: null, reason: null },
    ...{ references: [], at: "2026-01-01T00:00:00.000Z", duration_ms: null, ...more },
  });
}

function needed(...items: Observation["items"]) {
  const seen: Observation = {
    ...{ stage: "policy_border", plane: "border", partner: undefined, applied: null, drift: [], items },
    ...{ runs: { gateway: true, bridge: true }, outOfReach: [], fromOutside: true, startedBefore: null },
    ...{ policyBefore: { digest: null, excluded: false }, duties: undefined, staticProblems: undefined },
  };
  return borderRules(seen).find(({ condition }) => condition === "server_not_allowed")?.needs;
}

describe("borderRules", () => {
  it("borderRules accept the border's answer for a denial when the transport was closed first [OFF-2]", () => {
    const byTransport = item("invite", { layer: "transport", reason: "federation_denied" });
    assert.deepEqual(needed(item("policy_check"), byTransport), ["policy_check", "invite"]);
    assert.deepEqual(needed(item("policy_check"), byTransport, item("violation")), ["violation"]);
    assert.deepEqual(
      needed(item("policy_check"), item("invite")),
      ["violation"],
      "it came as far as the border",
    );
    const passes = item("invite", { layer: "transport", verdict: "open" });
    assert.deepEqual(needed(item("policy_check"), passes), ["violation"]);
  });
});
