// Withdrawing an agent: one that a partner offers, and one of this organisation's.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import { withdrawAgent } from "../../../../src/federation/agents/withdraw.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { changedPaths, commitRegistry, LIGHTHOUSE } from "../../../support/control-repository.ts";
import { fingerprintOf, identities, WEATHER } from "../../../support/readmission.ts";

describe("withdrawing an agent", () => {
  it("a withdrawal removes one pinned agent, retires its pin, and requires that the bridge trusts it no more [PRT-1]", async (t) => {
    const { federation, parts, weather, decide, repository } = await identities(t);
    const fingerprint = fingerprintOf(weather.identity);
    decide("unreadable");
    const options = { partner: "matrix.lighthouse.example:8448", agent: WEATHER };
    const first = await withdrawAgent(federation, parts, options);
    assert.equal(first.complete, false);
    await assert.rejects(withdrawAgent(federation, parts, options), { code: "config_unreadable" });
    decide({ accepted: true, fingerprint });
    assert.equal((await withdrawAgent(federation, parts, options)).complete, false);
    decide({ accepted: false, fingerprint });
    const second = await withdrawAgent(federation, parts, options);
    assert.deepEqual([second.complete, second.committed], [true, false], JSON.stringify(second.conditions));
    const { partner } =
      loadRegistry(await repository.read(second.revision as never, ["registry"])).partners[1] ??
      assert.fail();
    assert.deepEqual(Object.keys(partner.card.consumes), []);
    assert.equal(partner.retired.cardKeys[0]?.keyId, "lighthouse-card-1");
    assert.deepEqual(partner.gateway?.invokes, ["docs-qa", "berth_planner"], "nothing else of it");
  });

  it("a withdrawal is found again where no bridge is managed, and no agent is that was never there [PRT-1]", async (t) => {
    const { federation, parts } = await identities(t);
    const { decision: _, ...withoutBridge } = parts;
    const withdraw = (agent: string) =>
      withdrawAgent(federation, withoutBridge, { partner: "lighthouse", agent });
    assert.equal((await withdraw(WEATHER)).committed, true);
    const again = await withdraw(WEATHER);
    assert.deepEqual([again.committed, again.complete], [false, true], JSON.stringify(again.conditions));
    await assert.rejects(withdraw("no-such-agent"), { code: "usage" });
  });

  it("a withdrawal takes an agent of ours from one partner on planes 5 and 4 alone [PRT-1]", async (t) => {
    const { federation, parts, repository, folder } = await identities(t);
    const before = await repository.requireHead();
    const result = await withdrawAgent(federation, parts, { partner: "lighthouse", agent: "berth_planner" });
    assert.equal(result.complete, true, JSON.stringify(result.conditions));
    const changed = changedPaths(repository, before, result.revision as never);
    assert.ok(
      changed.every((path) =>
        /^(registry\/partners\/lighthouse|(rendered|kubernetes)\/(card|gateway)\/)/.test(path),
      ),
      changed.join(),
    );
    assert.doesNotMatch(readFileSync(join(folder, "card/publication.yaml"), "utf8"), /berth_planner/);
    await assert.rejects(
      withdrawAgent(federation, parts, { partner: "lighthouse", agent: "no-such-agent" }),
      (error) => error instanceof DrawbridgeError && error.code === "usage",
    );
  });

  it("an agent is not withdrawn while a client with which the partner had applied may invoke it [PRT-1]", async (t) => {
    const { federation, parts, repository } = await identities(t);
    const organisation = "registry/organisation.yaml";
    const text =
      (await repository.read(await repository.requireHead(), ["registry"])).get(organisation) ?? "";
    const client = `  - clientId: lighthouse-applicant
    applicant: matrix.lighthouse.example:8448
    secret: {file: client-secrets/lighthouse-applicant}
    invokes: [berth_planner]
`;
    const declared = text.replace(/^clients:\n/m, (line) => line + client);
    await commitRegistry(repository, new Map([[organisation, declared]]));
    const options = { partner: "lighthouse", agent: "berth_planner" };
    const { complete, conditions } = await withdrawAgent(federation, parts, options);
    assert.equal(complete, false);
    const withdrawn = conditions.find(({ condition }) => condition === "agent_withdrawn");
    assert.match(withdrawn?.found ?? "", /applicant_admitted/);
    assert.match(withdrawn?.hint ?? "", /organisation\.yaml/);
    await commitRegistry(repository, new Map([[organisation, declared.replace("[berth_planner]", "[]")]]));
    assert.equal((await withdrawAgent(federation, parts, options)).complete, true);
  });

  it("a withdrawal names no agent that is both the partner's and ours: the same command again took away the other [PRT-1]", async (t) => {
    const { federation, parts, repository, registryText } = await identities(t);
    const both = (await registryText(LIGHTHOUSE)).replaceAll(`${WEATHER}:`, "berth_planner:");
    await commitRegistry(repository, new Map([[LIGHTHOUSE, both]]));
    const options = { partner: "lighthouse", agent: "berth_planner" };
    await assert.rejects(withdrawAgent(federation, parts, options), /both consumes an agent berth_planner/);
    assert.equal(await registryText(LIGHTHOUSE), both);
  });
});
