// Until when a partner's tokens live, by what is remembered of its gateway plane.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { systemRandom } from "../../../../../src/domain/clock.ts";
import type { FederationConfig } from "../../../../../src/federation/config.ts";
import { tokensLiveUntil } from "../../../../../src/federation/offboarding/duties/residual.ts";
import { writeRun, writeStage } from "../../../../../src/federation/offboarding/run/run-file.ts";
import { parseRevision } from "../../../../../src/federation/repository/repository.ts";
import { openStateFolder } from "../../../../../src/federation/state/folder.ts";
import { readPlane, writePlane } from "../../../../../src/federation/state/plane-records.ts";
import { NO_SCOPE } from "../../../../support/removal.ts";
import { temporaryFolder } from "../../../../support/temporary.ts";

const REVISION = parseRevision("0".repeat(40)) ?? assert.fail();
const at = (minute: string) => `2026-01-01T00:${minute}:00.000Z`;

describe("tokensLiveUntil", () => {
  it("tokensLiveUntil counts a token's life from the last time that the client is known to have been disabled [OFF-3]", (t) => {
    const state = openStateFolder(temporaryFolder(t), systemRandom);
    const run = writeRun(state, {
      ...{ version: 1, run: "1".repeat(32), kind: "full", trigger: "contract_end", self: "a.test" },
      ...{
        remover: "a.test",
        partner: "b.test",
        private_record_file: "/nowhere",
        opened_at: at("00"),
        contained_at: null,
        waivers: [],
        ended: null,
      },
      baseline: { revision: "0".repeat(40), scope: NO_SCOPE },
    });
    const config = { gateway: {} } as FederationConfig;
    const until = () => tokensLiveUntil({ config }, run);
    const inForce = (since: string, repairedAt: string | null) =>
      writePlane(state, {
        ...readPlane(state, "gateway"),
        inForce: { revision: REVISION, digest: `sha256:${"0".repeat(64)}`, at: since, repairedAt },
      });
    assert.deepEqual(until(), { reason: "gateway_not_closed" });
    inForce(at("10"), null);
    assert.deepEqual(until(), { reason: "gateway_not_closed" }, "a plane that is open is in force as well");
    const proof = { revision: null, render: null, out_of_reach: [], items: [], attested: [] };
    const shown = (verdict: "met" | "not_met") => [
      { condition: "token_refused", verdict, evidence: [], probe: "issuer_client", found: "", hint: "" },
    ];
    const stage = {
      ...{
        version: 1 as const,
        stage: "a2a_stop" as const,
        opened_at: at("09"),
        countersignature_skipped: null,
        scope: NO_SCOPE,
        commit: null,
      },
    };
    writeStage(run, { ...stage, proof: { at: at("18"), ...proof, conditions: shown("not_met") } });
    assert.deepEqual(until(), { reason: "gateway_not_closed" }, "it was observed open");
    writeStage(run, { ...stage, proof: { at: at("20"), ...proof, conditions: shown("met") } });
    assert.deepEqual(until(), { until: at("25") });
    inForce(at("10"), at("40"));
    assert.deepEqual(until(), { until: at("45") }, "somebody had opened it again behind the proof");
    assert.deepEqual(tokensLiveUntil({ config: {} as FederationConfig }, run), { reason: "no_gateway" });
  });
});
