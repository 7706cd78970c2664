// What is told of probes: against the registry, and to a person.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { sha256Tagged } from "../../../../src/domain/digest.ts";
import { FederationConfigFile } from "../../../../src/federation/config.ts";
import type { PlaneName } from "../../../../src/federation/plane-order.ts";
import { CARD_AGENTS, cardRender } from "../../../../src/federation/planes/card/render.ts";
import { cardRuntime } from "../../../../src/federation/planes/card/runtime.ts";
import { renderAll } from "../../../../src/federation/planes/render.ts";
import { judge, probeRows, probeSummary } from "../../../../src/federation/probes/report.ts";
import { desiredState } from "../../../../src/federation/reconcile/desired-state.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { type PartnerEntry, planeState } from "../../../../src/federation/registry/partner.ts";
import { parseRevision } from "../../../../src/federation/repository/repository.ts";
import {
  type EvidenceItem,
  type EvidenceItemBody,
  evidenceItem,
} from "../../../../src/records/format/evidence-item.ts";
import { httpServer, json } from "../../../support/http-server.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { harbourWith, withText } from "../../../support/sample-files.ts";

const PILOTS = "registry/partners/pilot-station.yaml";
const REVISION = parseRevision("0".repeat(40));

/** The sample organisation with some planes of the pilots closed. */
function sample(closed: readonly PlaneName[] = []) {
  const planes = `planes: {${closed.map((plane) => `${plane}: closed`).join(", ")}}\n`;
  const files = harbourWith(withText(PILOTS, "classification:", `${planes}classification:`));
  const registry = loadRegistry(files);
  const rendered = new Map([...renderAll(registry)].filter(([path]) => path.startsWith("rendered/")));
  const entry = registry.partners.find(({ file }) => file === PILOTS);
  assert.ok(entry !== undefined && REVISION !== undefined);
  return { entry, desired: desiredState(REVISION, { rendered }, registry) };
}

function item(found: Pick<EvidenceItemBody, "layer" | "plane" | "probe" | "verdict"> & { reason?: string }) {
  return evidenceItem({
    ...{ schema: "svc.federation.evidence_item.v1", partner: "pilots.example", vantage: "operator" },
    ...{ subject: "!room", status: 200, reason: null, references: [], duration_ms: 1 },
    ...{ at: "2026-01-02T03:04:05.000Z", ...found },
  });
}

const NOBODY: readonly EvidenceItem[] = [
  item({ plane: "rooms", probe: "room_members", verdict: "closed", layer: "homeserver" }),
  item({
    ...{ plane: "rooms", probe: "message_to_partner", verdict: "closed" },
    ...{ layer: "room_membership", reason: "no_member" },
  }),
];
const REFUSED = item({
  ...{ plane: "rooms", probe: "make_join", verdict: "closed" },
  ...{ layer: "room_acl", reason: "server_banned" },
});

describe("judge and its report", () => {
  it("judge accepts a room that the partner's own server has given up when the plane is open [OFF-4]", () => {
    const { entry, desired } = sample();
    const givenUp = item({
      ...{ plane: "rooms", probe: "remote_join_via_witness", verdict: "closed" },
      ...{ layer: "homeserver", reason: "room_blocked" },
    });
    const found = judge([givenUp], desired, entry, ["rooms"]);
    assert.equal(found.holds, true);
    assert.equal(found.items[0]?.outcome, "nobody_there");
    const blocked = item({
      ...{ plane: "rooms", probe: "make_join", verdict: "closed" },
      ...{ layer: "homeserver", reason: "room_blocked" },
    });
    assert.equal(judge([blocked], desired, entry, ["rooms"]).holds, false, "here it was blocked by us");
  });

  it("judge wants an agent refused that the partner may not invoke, also while the plane is open [OFF-4]", () => {
    const { desired } = sample();
    const isOpen = ({ partner }: PartnerEntry) =>
      partner.gateway !== undefined && planeState(partner, "gateway") === "open";
    const entry = desired.registry.partners.find(isOpen);
    assert.ok(entry !== undefined);
    const invoke = { plane: "gateway", probe: "invoke", layer: "gateway" } as const;
    const [refused, letIn] = [item({ ...invoke, verdict: "closed" }), item({ ...invoke, verdict: "open" })];
    assert.equal(judge([refused], desired, entry, []).holds, true);
    assert.equal(judge([letIn], desired, entry, []).holds, false);
  });

  it("a closed plane of which another part is not managed is not called closed as a whole [ADO-1]", () => {
    const { entry, desired } = sample(["card"]);
    const withdrawn = item({
      ...{ plane: "card", probe: "card_fetch", verdict: "closed" },
      ...{ layer: "gateway", reason: "card_withdrawn" },
    });
    const summary = (...parts: ("bridge" | "gateway")[]) =>
      probeSummary(judge([withdrawn], desired, entry, ["card"], ["homeserver", ...parts]), entry);
    assert.match(summary("gateway"), /as far as it is managed here: the bridge is not, and nothing is known/);
    assert.doesNotMatch(summary("bridge", "gateway"), /managed here/);
  });

  it("judge accepts a room without members when the plane is open, and no refusal [OFF-4]", () => {
    const { entry, desired } = sample();
    const found = judge(NOBODY, desired, entry, ["rooms"]);
    assert.equal(found.holds, true);
    assert.deepEqual(
      found.items.map(({ outcome }) => outcome),
      ["nobody_there", "nobody_there"],
    );
    assert.deepEqual(
      probeRows(found).map(([mark]) => mark),
      ["-", "-"],
    );
    const summary = probeSummary(found, entry);
    assert.match(summary, /is as the registry says: 0 probes agree/);
    assert.match(
      summary,
      /nobody of pilot-station, or nobody here, is in !room\. An open plane lets people in/,
    );

    const refused = judge([...NOBODY, REFUSED], desired, entry, ["rooms"]);
    assert.equal(refused.holds, false);
    assert.deepEqual(
      probeRows(refused).map(([mark]) => mark),
      ["WRONG", "-", "-"],
    );
  });

  it("probeSummary lists what was not tried in one line per reason, with the rooms [OFF-4]", () => {
    const { entry, desired } = sample(["rooms"]);
    const untried = (probe: string, subject: string | null, reason = "not_configured:witness") =>
      item({ ...{ plane: "rooms", probe, subject, verdict: "unknown", layer: "none" }, reason });
    const items = [
      ...NOBODY,
      ...["!room", "!other"].map((room) => untried("message_to_witness", room)),
      untried("remote_join", "!other", "not_configured:rooms"),
      untried("backfill_at_witness", "!other"),
      untried("known_room", null),
    ];
    const summary = probeSummary(judge(items, desired, entry, ["rooms"]), entry).split("\n");
    assert.deepEqual(
      summary.filter((line) => line.startsWith("Not tried")),
      [
        "Not tried (probe.yaml gives no witness): message_to_witness in all 2 rooms, backfill_at_witness on !other, known_room.",
        "Not tried (probe.yaml gives no rooms): remote_join on !other.",
      ],
    );
  });

  it("judge requires an item that shows a closed plane closed, and none that shows it open [OFF-4]", () => {
    const { entry, desired } = sample(["rooms", "border"]);
    const closed = judge(NOBODY, desired, entry, ["rooms"]);
    assert.deepEqual(
      closed.items.map(({ outcome }) => outcome),
      ["as_wanted", "as_wanted"],
    );
    assert.equal(closed.holds, true);
    const unproven = judge(NOBODY, desired, entry, ["rooms", "border"]);
    assert.deepEqual([unproven.holds, unproven.unproven], [false, ["border"]]);
    const open = item({ plane: "border", probe: "policy_check", verdict: "open", layer: "border" });
    assert.equal(judge([open], desired, entry, ["border"]).holds, false);
  });

  /** What the operator's part of plane 4 says of the pilots, beside a bridge that names a file's digest. */
  async function mayAsk(t: TestContext, closed: readonly PlaneName[], bridge: "behind" | "down" | "right") {
    const { entry, desired } = sample(closed);
    const files = cardRender.render(desired.registry);
    const digest = bridge === "right" ? sha256Tagged(files.get(CARD_AGENTS) ?? "") : sha256Tagged("older");
    const server = await httpServer(t);
    server.answer =
      bridge === "down"
        ? (_request, response) => response.destroy()
        : json(JSON.stringify({ agents: { digest } }));
    const config = FederationConfigFile.pick({ card: true }).parse({
      card: {
        ...{ agentsFile: "agents.yaml", bridgeAuditFile: "audit.jsonl" },
        bridgeHealthUrl: `${server.url}/readyz`,
      },
    });
    const plane = cardRuntime({ ...config, directory: "/nonexistent" }, new ManualClock(0));
    const items = await plane.probe({ revision: desired.revision, registry: desired.registry, files }, entry);
    return items.filter(({ probe }) => probe === "may_ask").map(({ verdict, reason }) => [verdict, reason]);
  }

  it("the card plane's probe reports whether a partner may ask by the file that the bridge has in force [PLN-4]", async (t) => {
    assert.deepEqual(await mayAsk(t, [], "right"), [["open", "in_agents_file"]]);
    assert.deepEqual(await mayAsk(t, ["card"], "right"), [["closed", "not_in_agents_file"]]);
    assert.deepEqual(await mayAsk(t, ["card"], "behind"), [["unknown", "not_in_force"]]);
    assert.deepEqual(await mayAsk(t, ["card"], "down"), [["unknown", "bridge_not_running"]]);
  });
});
