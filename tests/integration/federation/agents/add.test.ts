// An agent that our own bridge carries is added and removed, on a real repository.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type AddOptions, addAgent } from "../../../../src/federation/agents/pin.ts";
import { withdrawAgent } from "../../../../src/federation/agents/withdraw.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { AgentsFile, targetFingerprint } from "../../../../src/rendered-files/agents-file.ts";
import { parseYaml } from "../../../../src/runtime/load-yaml.ts";
import { cardBy, cardKey, identities } from "../../../support/readmission.ts";

const CARD_URL = "https://timetable.harbour.example/.well-known/agent-card.json";

async function setUp(t: Parameters<typeof identities>[0]) {
  const made = await identities(t);
  const key = await cardKey("timetable-1");
  made.serve(await cardBy(key));
  const options: AddOptions = {
    agent: "timetable",
    cardUrl: CARD_URL,
    identity: key.identity,
    allowedOrigins: ["https://timetable.harbour.example:8443"],
  };
  const { keyId, jwk } = key.identity;
  const fingerprint = targetFingerprint("timetable", {
    cardUrl: CARD_URL,
    cardIdentity: { keyId, jwk: { kty: "EC", crv: "P-256", ...jwk } },
  });
  const carried = async () => {
    const { repository } = made;
    const files = await repository.read(await repository.requireHead(), ["registry", "rendered"]);
    const text = files.get("rendered/card/agents.yaml") ?? "";
    return {
      registered: loadRegistry(files).organisation.consumes["timetable"],
      rendered: parseYaml(AgentsFile, text, "agents.yaml").agents["timetable"],
    };
  };
  return { ...made, options, fingerprint, carried };
}

describe("adding and removing an agent of our own", () => {
  it("an added agent is in the registry and in the bridge's file, and complete once the bridge has verified it [AGT-1]", async (t) => {
    const { federation, parts, options, fingerprint, carried, decide } = await setUp(t);
    const first = await addAgent(federation, parts, options);
    assert.deepEqual([first.act, first.committed, first.complete], ["add", true, false]);
    decide({ accepted: true, fingerprint });
    const second = await addAgent(federation, parts, options);
    assert.deepEqual([second.committed, second.complete], [false, true], JSON.stringify(second.conditions));
    const elsewhere = { ...options, allowedOrigins: ["https://elsewhere.example"] };
    await assert.rejects(addAgent(federation, parts, elsewhere), /\[agent_present\]/);
    const { registered, rendered } = await carried();
    assert.equal(registered?.cardUrl, CARD_URL);
    assert.deepEqual(rendered?.allowedOrigins, ["https://timetable.harbour.example:8443"]);
    assert.ok(rendered?.allowedSenders.includes("*:matrix.harbour.example"));
  });

  it("a card that the key has not signed, a name that is taken, and an address without a card change nothing [AGT-1]", async (t) => {
    const { federation, parts, options, carried, repository, serveNothing } = await setUp(t);
    const before = await repository.requireHead();
    const { identity } = await cardKey("timetable-1");
    const refusals: readonly (readonly [Partial<AddOptions>, RegExp])[] = [
      [{ identity }, /\[unverified_card\]/],
      [{ agent: "docs-qa" }, /\[agent_present\]/],
      [{ agent: "lighthouse-weather" }, /\[agent_present\]/],
    ];
    for (const [change, message] of refusals) {
      await assert.rejects(addAgent(federation, parts, { ...options, ...change }), message);
    }
    serveNothing();
    await assert.rejects(addAgent(federation, parts, options), /there is no card at .*nothing was changed/);
    assert.equal(await repository.requireHead(), before);
    assert.equal((await carried()).registered, undefined);
  });

  it("a removed agent is carried no more, and its key may be added again [AGT-1]", async (t) => {
    const { federation, parts, options, fingerprint, carried, decide } = await setUp(t);
    decide({ accepted: true, fingerprint });
    await addAgent(federation, parts, options);
    decide({ accepted: false, fingerprint });
    const removed = await withdrawAgent(federation, parts, { agent: "timetable", keepsKey: true });
    assert.deepEqual([removed.act, removed.complete], ["remove", true], JSON.stringify(removed.conditions));
    assert.deepEqual(await carried(), { registered: undefined, rendered: undefined });
    decide({ accepted: true, fingerprint });
    assert.equal((await addAgent(federation, parts, options)).complete, true);
  });
});
