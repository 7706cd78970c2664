// Whether evidence shows a condition: the evidence of a real removal does, and nothing less or other than it.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Circumstances } from "../../../../src/records/conditions/condition.ts";
import { conditionsOf, fromInside } from "../../../../src/records/conditions/condition-table.ts";
import {
  conditionsOfStage,
  evaluate,
  ITEM_AGE_MAX_MS,
  isSettled,
} from "../../../../src/records/conditions/evaluate.ts";
import { type EvidenceItem, evidenceItem } from "../../../../src/records/format/evidence-item.ts";
import { RECORD_EVIDENCE_MAX } from "../../../../src/records/format/fields.ts";
import { PLANE_NAMES, STAGE_NAMES, type StageName } from "../../../../src/records/format/removal-stages.ts";
import { circumstancesOf, REAL } from "../../../support/removal.ts";

function verdicts(
  stage: StageName,
  items: readonly EvidenceItem[] = REAL.at_remover[stage].items,
  change: Partial<Circumstances> = {},
) {
  const found = evaluate(conditionsOfStage(stage), items, circumstancesOf("at_remover", stage, change));
  return new Map(found.map(({ condition, verdict }) => [condition, verdict]));
}

function changed({ digest: _, ...body }: EvidenceItem, change: Partial<EvidenceItem>): EvidenceItem {
  return evidenceItem({ ...body, ...change });
}

const itemOf = (stage: StageName, probe: string, vantage = "operator") => {
  const found = REAL.at_remover[stage].items.find((one) => one.probe === probe && one.vantage === vantage);
  assert.ok(found !== undefined, probe);
  return found;
};

function without(stage: StageName, ...probes: readonly string[]): readonly EvidenceItem[] {
  return REAL.at_remover[stage].items.filter(({ probe }) => !probes.includes(probe));
}

/** Whether a condition of a real stage is met by one of its items when that is changed. */
function rests(stage: StageName, index: number, change: Partial<EvidenceItem>): boolean {
  const { items } = REAL.at_remover[stage];
  const [item] = items.slice(index);
  assert.ok(item !== undefined);
  const other = changed(item, change);
  const circumstances = circumstancesOf("at_remover", stage);
  const found = evaluate(conditionsOfStage(stage), items.with(index, other), circumstances);
  return found.some(({ evidence, verdict }) => verdict === "met" && evidence.includes(other.digest));
}

describe("evaluate", () => {
  it("evaluate finds every condition of a real removal met, at both organisations [OFF-5]", () => {
    for (const side of ["at_remover", "at_partner"] as const) {
      for (const stage of STAGE_NAMES) {
        const { items } = REAL[side][stage];
        const found = evaluate(conditionsOfStage(stage), items, circumstancesOf(side, stage));
        assert.deepEqual(new Set(found.map(({ verdict }) => verdict)), new Set(["met"]), `${side} ${stage}`);
        const used = new Set(found.flatMap(({ evidence }) => evidence));
        assert.equal(used.size, items.length, `${side} ${stage}: each item shows something`);
      }
    }
  });

  it("evaluate counts an item by what it says, never by its verdict alone [OFF-5]", () => {
    for (const stage of STAGE_NAMES) {
      const { items } = REAL.at_remover[stage];
      items.forEach((item, index) => {
        // What is waived by name says nothing, by whatever answer.
        if (item.verdict === "unknown") return;
        const changes: Partial<EvidenceItem>[] = [
          { probe: "nothing_at_all" },
          { layer: "elsewhere" },
          { partner: "stranger.test" },
          { vantage: item.vantage === "operator" ? "partner" : "operator" },
          { verdict: "unknown" },
          { at: new Date(Date.parse(REAL.at_remover[stage].opened_at) - 1_000).toISOString() },
          { at: new Date(Date.parse(REAL.at_remover[stage].closed_at) + 1_000).toISOString() },
          { vantage: "nobody" },
          ...(stage === "data_duties"
            ? []
            : [{ plane: item.plane === "border" ? "rooms" : "border" } as const]),
        ];
        for (const change of changes) {
          assert.equal(
            rests(stage, index, change),
            false,
            `${stage} ${item.probe} ${JSON.stringify(change)}`,
          );
        }
      });
    }
  });

  it("evaluate counts an item only with every reference that its row demands [OFF-5]", () => {
    const demanding = ["reconciled", "render", "room_members", "policy_check"];
    const probes = new Set<string>();
    for (const stage of STAGE_NAMES) {
      REAL.at_remover[stage].items.forEach(({ probe, verdict, references }, index) => {
        if (!demanding.includes(probe) || verdict === "unknown") return;
        references.forEach((one, place) => {
          const change = { references: references.toSpliced(place, 1) };
          assert.equal(rests(stage, index, change), false, `${stage} ${probe} without ${one}`);
          probes.add(probe);
        });
      });
    }
    assert.deepEqual([...probes].sort(), demanding.toSorted());
  });

  it("evaluate never takes the absent for closed: without evidence no condition is met [OFF-5]", () => {
    for (const plane of PLANE_NAMES) {
      for (const direction of ["closed", "open"] as const) {
        const circumstances = { ...circumstancesOf("at_remover", "a2a_stop"), plane };
        const found = evaluate(conditionsOf(plane, direction), [], circumstances);
        assert.ok(found.length > 0);
        for (const one of found)
          assert.equal(one.verdict, "unknown", `${plane} ${direction} ${one.condition}`);
      }
    }
  });

  it("evaluate reports a part that nobody manages as unmanaged, and never as met [ADO-1]", () => {
    const scope = { ...circumstancesOf("at_remover", "a2a_stop").scope, parts: ["homeserver"] as const };
    for (const stage of ["a2a_stop", "a2a_discovery"] as const) {
      const found = verdicts(stage, undefined, { scope: { ...scope, parts: [...scope.parts] } });
      assert.deepEqual([...new Set(found.values())], ["unmanaged"], stage);
    }
  });

  it("evaluate asks for every room, agent and client in scope [OFF-5]", () => {
    const { scope } = circumstancesOf("at_remover", "room");
    const rooms = [...(scope.rooms ?? []), "!another:org-a.test"];
    assert.equal(
      verdicts("room", undefined, { scope: { ...scope, rooms } }).get("enforcement_holds"),
      "unknown",
    );
    for (const room of scope.rooms ?? []) {
      const items = REAL.at_remover.room.items.filter(({ subject }) => subject !== room);
      assert.equal(verdicts("room", items).get("acl_excludes_partner"), "unknown", room);
    }
    const more = { ...scope, agents: [...scope.agents, "other-agent"], pins: [...scope.pins, "other-pin"] };
    assert.equal(verdicts("a2a_stop", undefined, { scope: more }).get("invoke_refused"), "unknown");
    const discovery = verdicts("a2a_discovery", undefined, { scope: more });
    assert.equal(discovery.get("card_gone_or_refused"), "unknown");
    assert.equal(discovery.get("agent_card_untrusted"), "unknown");
    const client = { ...scope, client: "another-client" };
    assert.equal(verdicts("a2a_stop", undefined, { scope: client }).get("token_refused"), "unknown");
  });

  it("evaluate asks for the clients with which the counterparty had applied [OFF-5]", () => {
    const { scope } = circumstancesOf("at_remover", "a2a_stop");
    const applicants = ["applicant"];
    const both = REAL.at_remover.a2a_stop.items.flatMap((item) =>
      item.vantage === "operator" && item.subject === scope.client
        ? [item, changed(item, { subject: "applicant" })]
        : [item],
    );
    const found = (items: readonly EvidenceItem[]) =>
      verdicts("a2a_stop", items, { scope: { ...scope, applicants } });
    assert.equal(found(both).get("partner_not_rendered"), "met");
    assert.equal(found(both).get("token_refused"), "met");
    const silent = found(REAL.at_remover.a2a_stop.items);
    assert.equal(silent.get("partner_not_rendered"), "unknown");
    assert.equal(silent.get("token_refused"), "unknown");
    const open = both.map((item) =>
      item.subject === "applicant" && item.probe === "issuer_client"
        ? changed(item, { verdict: "open", reason: "client_enabled" })
        : item,
    );
    assert.equal(found(open).get("token_refused"), "not_met");
  });

  it("evaluate takes time in proportion to the items, whatever is listed or objects [OFF-5]", () => {
    const { digest: _, ...acl } = itemOf("room", "room_acl");
    // Steps are counted, not seconds: how often a subject is read.
    const reads = (count: number, isListed: boolean) => {
      let steps = 0;
      const rooms = Array.from({ length: count }, (_, index) => `!r${index}:x`);
      const items = rooms.flatMap((subject) =>
        [1, 2, 3, 4].map((index) => {
          const item = evidenceItem({ ...acl, subject, reason: `w${index}` });
          return Object.defineProperty({ ...item }, "probe", {
            enumerable: true,
            get: () => {
              steps += 1;
              return item.probe;
            },
          });
        }),
      );
      const scope = { ...REAL.at_remover.room.scope, rooms };
      verdicts("room", items, { scope, ...(isListed && { outOfReach: new Set(rooms) }) });
      return steps;
    };
    for (const isListed of [false, true]) {
      const [few, many] = [reads(50, isListed), reads(400, isListed)];
      assert.ok(many <= few * 8 * 1.1, `${few} steps for 200 items, ${many} for 1600`);
    }
  });

  it("evaluate takes one item that says open for a refusal of the condition [OFF-5]", () => {
    const open = changed(itemOf("room", "room_enforcement"), { verdict: "open" });
    const items = [...REAL.at_remover.room.items, open];
    assert.equal(verdicts("room", items).get("enforcement_holds"), "not_met");
  });

  it("evaluate accepts that there is nothing to observe only from an item of its own [OFF-5]", () => {
    const base = circumstancesOf("at_remover", "a2a_stop").scope;
    const scope = { ...base, agents: [] };
    const items = without("a2a_stop", "invoke", "token_request");
    const verdictOf = (all: readonly EvidenceItem[]) =>
      verdicts("a2a_stop", all, { scope }).get("invoke_refused");
    assert.equal(verdictOf(items), "unknown");
    const proof = changed(itemOf("a2a_stop", "render"), {
      ...{ probe: "agents_offered", subject: null, reason: "no_agent_offered" },
    });
    assert.equal(verdictOf([...items, proof]), "not_applicable");
    assert.equal(
      verdicts("a2a_stop", [...without("a2a_stop", "invoke"), proof]).get("invoke_refused"),
      "unknown",
      "the scope names an agent",
    );
  });

  it("evaluate refuses the client of a partner that may invoke nothing while the issuer has it enabled [OFF-2]", () => {
    const scope = { ...circumstancesOf("at_remover", "a2a_stop").scope, agents: [] };
    const client = itemOf("a2a_stop", "issuer_client");
    const verdictOf = (change: Partial<EvidenceItem>) =>
      verdicts("a2a_stop", [...without("a2a_stop", "issuer_client"), changed(client, change)], { scope }).get(
        "token_refused",
      );
    assert.equal(verdictOf({}), "met");
    assert.equal(verdictOf({ verdict: "open", reason: "client_enabled" }), "not_met");
  });

  it("evaluate excuses an unknown room only when it is listed as out of reach [OFF-5]", () => {
    const [room = ""] = REAL.at_remover.room.scope.rooms ?? [];
    const items = REAL.at_remover.room.items.map((item) =>
      item.subject === room && item.vantage === "operator"
        ? changed(item, { verdict: "unknown", reason: "unproven" })
        : item,
    );
    assert.equal(verdicts("room", items).get("acl_excludes_partner"), "unknown");
    const listed = { outOfReach: new Set([room]) };
    assert.equal(verdicts("room", items, listed).get("acl_excludes_partner"), "met");
    const silent = REAL.at_remover.room.items.filter(({ subject }) => subject !== room);
    assert.equal(
      verdicts("room", silent, listed).get("acl_excludes_partner"),
      "unknown",
      "nobody has looked at it",
    );
    const asPartner = items.map((item) =>
      item.subject === room && item.probe === "room_acl" && item.vantage === "operator"
        ? changed(item, { vantage: "partner" })
        : item,
    );
    assert.equal(
      verdicts("room", asPartner, listed).get("acl_excludes_partner"),
      "unknown",
      "its own operator has not looked at it",
    );
  });

  it("evaluate excuses no requirement of a listed room by another probe's missing answer [OFF-5]", () => {
    const [room = ""] = REAL.at_remover.room.scope.rooms ?? [];
    const items = REAL.at_remover.room.items.map((item) => {
      if (item.subject !== room || item.vantage !== "operator") return item;
      if (item.probe === "room_acl") return changed(item, { verdict: "unknown", reason: "timed_out" });
      if (item.probe === "room_members") {
        return changed(item, { verdict: "open", references: ["present=3"] });
      }
      return changed(item, { verdict: "open" });
    });
    const listed = { outOfReach: new Set([room]) };
    const found = verdicts("room", items, listed);
    assert.deepEqual(
      [found.get("acl_excludes_partner"), found.get("enforcement_holds"), found.get("members_gone")],
      ["met", "not_met", "not_met"],
    );
    const silent = items.filter(({ probe, subject }) => subject !== room || probe === "room_acl");
    assert.equal(verdicts("room", silent, listed).get("members_gone"), "unknown");
    const join = itemOf("room", "make_join", "partner");
    const let_in = changed(join, { verdict: "open", layer: "homeserver", status: 200, reason: "let_in" });
    const entered = verdicts("room", [...REAL.at_remover.room.items, let_in], {
      outOfReach: new Set([join.subject ?? ""]),
    });
    assert.equal(entered.get("kept_out_of_rooms"), "not_met");
  });

  it("evaluate excuses a room that is open where the reconciler names it, and every room it names is listed [OFF-5]", () => {
    const [room = "", another = ""] = REAL.at_remover.room.scope.rooms ?? [];
    const { revision, render } = REAL.at_remover.room;
    const found = (
      references: readonly (string | null)[],
      listed: readonly string[],
      reason = "incomplete",
    ) => {
      const items = REAL.at_remover.room.items.map((item) => {
        if (item.probe === "reconciled") {
          const named = references.filter((one) => one !== null);
          return changed(item, { verdict: "unknown", reason, references: named });
        }
        return item.subject === room && item.vantage === "operator"
          ? changed(item, { verdict: "open" })
          : item;
      });
      return [...verdicts("room", items, { outOfReach: new Set(listed) }).values()];
    };
    assert.deepEqual(new Set(found([revision, render, room], [room])), new Set(["met"]));
    for (const [references, listed, reason] of [
      [[revision, render, room], []],
      [[revision, render, room, another], [room]],
      [
        [revision, render, another],
        [room, another],
      ],
      [[revision, render], [room]],
      [[revision, room], [room]],
      [[room], [room]],
      [[revision, render, room], [room], "deferred"],
    ] as const) {
      assert.ok(found(references, listed, reason).includes("not_met"), JSON.stringify([references, listed]));
    }
  });

  it("evaluate excuses an incomplete reconciler on no plane but rooms, whatever is listed [OFF-5]", () => {
    for (const stage of ["a2a_stop", "a2a_discovery", "room", "policy_border", "transport"] as const) {
      const { revision, render } = REAL.at_remover[stage];
      const verdictOf = (named: readonly string[], listed: readonly string[]) => {
        const items = REAL.at_remover[stage].items.map((item) =>
          item.probe === "reconciled"
            ? changed(item, {
                ...{ verdict: "unknown", reason: "incomplete" },
                references: [revision ?? "", render ?? "", ...named],
              })
            : item,
        );
        return verdicts(stage, items, { outOfReach: new Set(listed) }).get("in_force");
      };
      assert.equal(verdictOf([], ["weather"]), "unknown", stage);
      assert.equal(verdictOf(["!room"], ["weather"]), "unknown", stage);
      assert.equal(verdictOf(["!room"], ["!room"]), stage === "room" ? "met" : "unknown", stage);
    }
  });

  it("evaluate refuses an invocation of any agent that was let in, whatever the scope names [OFF-5]", () => {
    const invoke = itemOf("a2a_stop", "invoke", "partner");
    const let_in = changed(invoke, { subject: "another", verdict: "open", status: 200, reason: "let_in" });
    const items = [...REAL.at_remover.a2a_stop.items, let_in];
    assert.equal(verdicts("a2a_stop", items).get("invoke_refused"), "not_met");
  });

  it("evaluate accepts a card that stays for others when its use was refused [OFF-2]", () => {
    const operator = itemOf("a2a_discovery", "card_fetch");
    const partner = itemOf("a2a_discovery", "card_fetch", "partner");
    const stays = changed(operator, { verdict: "open", status: 200, reason: "consumed_by_others" });
    const published = changed(partner, { verdict: "open", status: 200, reason: "published" });
    const rest = without("a2a_discovery", "card_fetch");
    const use = (verdict: "closed" | "open", reason: string) =>
      changed(operator, { probe: "card_use", status: null, verdict, reason });
    const verdictOf = (...items: readonly EvidenceItem[]) =>
      verdicts("a2a_discovery", [...rest, ...items]).get("card_gone_or_refused");
    assert.equal(verdictOf(stays, published, use("closed", "use_refused")), "met");
    assert.notEqual(verdictOf(stays, published, use("open", "no_refusal_observed")), "met");
    assert.notEqual(verdictOf(stays, published), "met");
    const leak = changed(stays, { reason: "card_public" });
    assert.equal(verdictOf(leak, published, use("closed", "use_refused")), "not_met");
    // It is lawful for that agent alone.
    const { scope } = circumstancesOf("at_remover", "a2a_discovery");
    const both = [
      ...rest,
      stays,
      published,
      use("closed", "use_refused"),
      changed(leak, { subject: "another" }),
    ];
    const more = { scope: { ...scope, agents: [...scope.agents, "another"] } };
    assert.equal(verdicts("a2a_discovery", both, more).get("card_gone_or_refused"), "not_met");
  });

  it("evaluate refuses an item that is older than an hour when its stage is closed [OFF-5]", () => {
    const { closed_at } = REAL.at_remover.transport;
    const until = new Date(Date.parse(closed_at) + ITEM_AGE_MAX_MS).toISOString();
    assert.deepEqual([...new Set(verdicts("transport", undefined, { until }).values())], ["unknown"]);
  });

  it("evaluate refuses a policy that was in force before, and a homeserver that was restarted [OFF-2]", () => {
    const { scope } = circumstancesOf("at_remover", "policy_border");
    const [policy = ""] = itemOf("policy_border", "policy_check").references;
    const found = (change: Partial<typeof scope>) =>
      verdicts("policy_border", undefined, { scope: { ...scope, ...change } });
    assert.equal(found({ policy }).get("policy_digest_changed"), "unknown");
    assert.equal(found({ policy: null }).get("policy_digest_changed"), "met");
    assert.equal(found({ started_at: "2026-01-01T00:00:00.000Z" }).get("no_restart"), "unknown");
  });

  it("evaluate settles a purge by what was deleted, or by a waiver [OFF-2]", () => {
    const rest = without("data_duties", "purge_media");
    const verdictOf = (...items: readonly EvidenceItem[]) =>
      verdicts("data_duties", [...rest, ...items]).get("deletion_recorded");
    const kept = changed(itemOf("data_duties", "purge_media"), { reason: "kept_by_contract" });
    assert.equal(verdictOf(kept), "unknown", "what is kept was not deleted");
    const waiver = changed(kept, { probe: "purge_waived", layer: "private_record", reason: "no_data_kept" });
    assert.equal(verdictOf(kept, waiver), "not_applicable");
    assert.equal(verdictOf(waiver), "not_applicable");
    const tried = changed(kept, { verdict: "unknown", reason: "timed_out" });
    assert.equal(
      verdictOf(tried, waiver),
      "unknown",
      "nobody knows what was deleted, and a waiver says nothing was",
    );
  });

  it("evaluate excuses rows that are left only when each of them is listed [OFF-2]", () => {
    const rows = ["table_one", "table_two"].map((subject) =>
      changed(itemOf("data_duties", "purge_media"), {
        ...{ probe: "rows_left", layer: "database", verdict: "unknown", reason: "rows_left", subject },
      }),
    );
    const items = [...REAL.at_remover.data_duties.items, ...rows];
    const { outOfReach } = circumstancesOf("at_remover", "data_duties");
    const verdictOf = (...listed: readonly string[]) =>
      verdicts("data_duties", items, { outOfReach: new Set([...outOfReach, ...listed]) }).get(
        "deletion_recorded",
      );
    assert.equal(verdictOf("table_one", "table_two"), "met");
    assert.equal(verdictOf("table_one"), "unknown");
    assert.equal(verdictOf(), "unknown");
  });

  it("evaluate counts an attempt of the partner's that had no answer neither way where none is demanded [OFF-5]", () => {
    const join = changed(itemOf("room", "make_join", "partner"), {
      ...{ subject: "!another:org-a.test", verdict: "unknown", reason: "timed_out" },
    });
    const [room = ""] = REAL.at_remover.room.scope.rooms ?? [];
    const about = changed(join, { subject: room });
    const found = verdicts("room", [...REAL.at_remover.room.items, join, about]);
    assert.deepEqual(new Set(found.values()), new Set(["met"]));
  });

  it("evaluate takes as many items as a record may hold [OFF-5]", () => {
    const deletion = itemOf("data_duties", "purge_media");
    const all = Array.from({ length: RECORD_EVIDENCE_MAX }, (_, index) => ({
      ...{ ...deletion, digest: `sha256:${index.toString(16).padStart(64, "0")}` },
    }));
    const found = verdicts("data_duties", [...without("data_duties", "purge_media"), ...all]);
    assert.equal(found.get("deletion_recorded"), "met");
  });

  it("fromInside leaves what the organisation's own parts show of a plane [OFF-5]", () => {
    for (const [stage, plane] of [
      ["a2a_stop", "gateway"],
      ["policy_border", "border"],
      ["transport", "transport"],
    ] as const) {
      const conditions = fromInside(conditionsOf(plane, "closed"));
      const unshown = evaluate(conditions, [], circumstancesOf("at_remover", stage));
      assert.ok(!unshown.some(({ verdict }) => verdict === "met"), "nothing is met without evidence");
      const own = REAL.at_remover[stage].items.filter(({ vantage }) => vantage === "operator");
      const found = evaluate(conditions, own, circumstancesOf("at_remover", stage));
      assert.ok(found.length > 1 && found.every(isSettled), JSON.stringify(found));
    }
  });
});
