// The bridge's last word on each agent's card, while the bridge writes on, starts anew, or its file is replaced.
import assert from "node:assert/strict";
import { appendFileSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { FederationConfig } from "../../../../src/federation/config.ts";
import { cardRuntime, lastCardDecisions } from "../../../../src/federation/planes/card/runtime.ts";
import { renderAll } from "../../../../src/federation/planes/render.ts";
import { filesOf } from "../../../../src/federation/reconcile/desired-state.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { findPartner } from "../../../../src/federation/registry/partner.ts";
import type { Revision } from "../../../../src/federation/repository/repository.ts";
import { registryFiles } from "../../../support/sample-files.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

function line(agent: string, outcome: "accepted" | "rejected"): string {
  const reason = outcome === "accepted" ? "agent_card_verified" : "agent_card_untrusted";
  const target = { agent, fingerprint: `sha256:${"0".repeat(64)}` };
  return `${JSON.stringify({ schema: "svc.agent_card.v1", outcome, reason, target })}\n`;
}

/** What the bridge writes most of. */
const delegations = (count: number) =>
  `{"schema":"svc.delegation.v1","pad":"${"ä".repeat(40)}"}\n`.repeat(count);

function audit(t: TestContext) {
  const file = join(temporaryFolder(t), "audit.jsonl");
  const said = async () => {
    const last = await lastCardDecisions(file);
    return last === undefined
      ? undefined
      : Object.fromEntries([...last].map(([name, { outcome }]) => [name, outcome]));
  };
  return { file, said };
}

describe("the card plane's evidence", () => {
  it("says something of agents that were withdrawn since a removal was opened, the partner's and ours [PLN-4]", async (t) => {
    const { file } = audit(t);
    writeFileSync(file, line("lighthouse-weather", "rejected"));
    const registry = loadRegistry(registryFiles());
    const entry = findPartner(registry, "lighthouse");
    const partner = { ...entry.partner, card: { consumes: {} }, gateway: undefined };
    const nowhere = "http://127.0.0.1:9";
    const config = {
      directory: dirname(file),
      card: { agentsFile: "agents.yaml", bridgeAuditFile: file, bridgeHealthUrl: nowhere },
      gateway: { publicationFile: "p", invocationFile: "i", stateFile: "s", accessLog: "l", url: nowhere },
    } as unknown as FederationConfig;
    const { files } = filesOf("card", renderAll(registry));
    const desired = { revision: "0".repeat(40) as Revision, registry, files };
    const items = await cardRuntime(config, systemClock).probe(desired, { ...entry, partner }, [
      "docs-qa",
      "lighthouse-weather",
    ]);
    assert.deepEqual(
      items.filter(({ probe }) => probe !== "may_ask").map(({ probe, subject }) => [probe, subject]),
      [
        ["card_fetch", "docs-qa"],
        ["card_trust", "lighthouse-weather"],
      ],
    );
    assert.equal(items.find(({ probe }) => probe === "card_trust")?.reason, "agent_card_untrusted");
  });
});

describe("lastCardDecisions", () => {
  it("a card's last decision is followed as the bridge writes more lines [PLN-4]", async (t) => {
    const { file, said } = audit(t);
    assert.equal(await said(), undefined, "there is no file");
    writeFileSync(file, "");
    assert.deepEqual(await said(), {});
    appendFileSync(
      file,
      delegations(3_000) + line("docs", "accepted") + delegations(3_000) + line("maps", "accepted"),
    );
    assert.deepEqual(await said(), { docs: "accepted", maps: "accepted" });
    appendFileSync(file, delegations(10) + line("docs", "rejected"));
    assert.deepEqual(await said(), { docs: "rejected", maps: "accepted" });
    assert.deepEqual(await said(), { docs: "rejected", maps: "accepted" });
  });

  it("a line counts once it is whole, wherever it was cut, and a torn line that is cleared never does [PLN-4]", async (t) => {
    const { file, said } = audit(t);
    const [before, next] = [line("docs", "accepted"), line("docs", "rejected")];
    for (let cut = 0; cut < next.length - 1; cut++) {
      rmSync(file, { force: true });
      writeFileSync(file, before + next.slice(0, cut));
      assert.deepEqual(await said(), { docs: "accepted" }, `cut at ${cut}`);
      appendFileSync(file, next.slice(cut));
      assert.deepEqual(await said(), { docs: "rejected" }, `cut at ${cut}`);
    }
    appendFileSync(file, before.slice(0, 20));
    assert.deepEqual(await said(), { docs: "rejected" });
    truncateSync(file, before.length + next.length);
    appendFileSync(file, line("docs", "accepted"));
    assert.deepEqual(await said(), { docs: "accepted" });
  });

  it("an audit file that was replaced or truncated is read from its start, and a missing one is reported [PLN-4]", async (t) => {
    const { file, said } = audit(t);
    writeFileSync(file, line("docs", "accepted"));
    await said();
    writeFileSync(`${file}.new`, line("maps", "rejected") + line("docs", "rejected"));
    rmSync(file);
    assert.equal(await said(), undefined);
    writeFileSync(file, readFileSync(`${file}.new`));
    assert.deepEqual(await said(), { maps: "rejected", docs: "rejected" });
    writeFileSync(file, line("maps", "accepted"));
    assert.deepEqual(await said(), { maps: "accepted" });
  });
});
