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
    assert.deepEqual(until(), { until: at("15") });
    const proof = { revision: null, render: null, conditions: [], out_of_reach: [], items: [], attested: [] };
    writeStage(run, {
      ...{
        version: 1,
        stage: "a2a_stop",
        opened_at: at("09"),
        countersignature_skipped: null,
        scope: NO_SCOPE,
        commit: null,
      },
      proof: { at: at("20"), ...proof },
    });
    assert.deepEqual(until(), { until: at("25") });
    inForce(at("10"), at("40"));
    assert.deepEqual(until(), { until: at("45") }, "somebody had opened it again behind the proof");
    assert.deepEqual(tokensLiveUntil({ config: {} as FederationConfig }, run), { reason: "no_gateway" });
  });
});
