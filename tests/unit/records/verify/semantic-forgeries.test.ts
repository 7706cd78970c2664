// Records that are well-formed, signed by both organisations, and do not show what they claim: the evidence of a real
// removal with one thing changed, everything bound and signed anew. None verifies.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EvidenceItem, EvidenceItemBody } from "../../../../src/records/format/evidence-item.ts";
import { STAGE_NAMES, type StageName } from "../../../../src/records/format/removal-stages.ts";
import { verifyRecord } from "../../../../src/records/verify/verify-record.ts";
import { type Changes, itemsOf, minute, party, removalOf } from "../../../support/removal.ts";

const A = party("a.test");
const B = party("b.test");
const SIDES = ["a.test", "b.test"] as const;
type Side = (typeof SIDES)[number];

let forged = 0;

async function assertRefused(changes: Changes, what: string): Promise<void> {
  const { bytes, trust } = await removalOf(A, B, changes);
  const { outcome, problems } = verifyRecord(bytes, trust);
  assert.notEqual(outcome, "verified", what);
  assert.notEqual(outcome, "incomplete", what);
  assert.ok(problems.length > 0, what);
  forged += 1;
}

/** One item of each probe, vantage and answer in a stage: what is true of it is true of its like. */
function kindsIn(side: Side, stage: StageName): readonly EvidenceItem[] {
  const other = side === "a.test" ? "b.test" : "a.test";
  const items = itemsOf(side, other, stage);
  return [...new Map(items.map((item) => [`${item.probe} ${item.vantage} ${item.layer}`, item])).values()];
}

/** Changes the one item of a stage that has this digest when nothing is changed. */
function onItem(
  side: Side,
  stage: StageName,
  { digest: _, ...wanted }: EvidenceItem,
  change: Partial<EvidenceItemBody>,
): Changes {
  const isIt = (item: EvidenceItemBody) => JSON.stringify(item) === JSON.stringify(wanted);
  return {
    item: (item, organisation, at) =>
      organisation === side && at === stage && isIt(item) ? { ...item, ...change } : item,
  };
}

/** How many of the mutations come first, which are tried with every item. */
const VERDICTS = 2;

/** What one item may be changed to, so that it is not what shows its condition. */
function mutationsOf(item: EvidenceItem, stage: StageName): readonly Partial<EvidenceItemBody>[] {
  const isAboutAny = ["violation", "invite"].includes(item.probe) || stage === "data_duties";
  const isOfDuties = stage === "data_duties";
  // Accounts of a purge are shown by what they count, whatever words stand beside it.
  const isAccount = ["rows_before", "rows_after", "history_kept"].includes(item.probe);
  return [
    { verdict: "unknown" },
    { verdict: "open" },
    { probe: "nothing_at_all" },
    { vantage: item.vantage === "operator" ? "partner" : "operator" },
    { vantage: "nobody" },
    { layer: "elsewhere" },
    { status: item.status === 200 ? 403 : 200 },
    ...(isAccount ? [] : [{ reason: "something_else" }]),
    ...(isAboutAny ? [] : [{ subject: "elsewhere.test" }]),
    { partner: "stranger.test" },
    ...(isOfDuties ? [] : [{ plane: item.plane === "card" ? ("gateway" as const) : ("card" as const) }]),
    { at: minute(0) },
    { at: minute(75) },
  ];
}

const OPTIONAL = [
  ...["live_tokens", "make_join", "message_to_target", "invite"],
  ...["rows_before", "rows_after", "history_kept"],
];

function isRequired({ probe, vantage }: EvidenceItem): boolean {
  return !OPTIONAL.includes(probe) && !(probe === "card_fetch" && vantage === "partner");
}

describe("verifying records that do not show what they claim", () => {
  it("the record from which the forgeries are made verifies [OFF-5]", async () => {
    const { bytes, trust } = await removalOf(A, B);
    assert.deepEqual(verifyRecord(bytes, trust).problems, []);
    assert.equal(verifyRecord(bytes, trust).outcome, "verified");
  });

  for (const [index, side] of SIDES.entries()) {
    for (const stage of STAGE_NAMES) {
      it(`${side}'s ${stage} is refused when one item is of another probe, answer, subject or time [OFF-5]`, async () => {
        for (const [nth, item] of kindsIn(side, stage).entries()) {
          for (const [place, change] of mutationsOf(item, stage).entries()) {
            // Besides the verdicts, of each item every second is enough, and of the partner's side every fourth, of each
            // item other ones: the code is the same.
            const share = index === 0 ? 2 : 4;
            if ((index === 1 || place >= VERDICTS) && (place + nth) % share !== 0) continue;
            const what = `${side} ${stage} ${item.probe} ${item.vantage} ${JSON.stringify(change)}`;
            await assertRefused(onItem(side, stage, item, change), what);
          }
        }
      });
    }
  }

  it("a record is refused when an item is missing, or another condition's stands in its place [OFF-5]", async () => {
    for (const side of SIDES) {
      for (const stage of STAGE_NAMES) {
        const kinds = kindsIn(side, stage);
        for (const [index, item] of kinds.filter(isRequired).entries()) {
          const isIt = ({ probe, subject, vantage }: EvidenceItem) =>
            probe === item.probe &&
            vantage === item.vantage &&
            (subject === item.subject || !subject?.startsWith("!"));
          const only = (change: (items: readonly EvidenceItem[]) => readonly EvidenceItem[]): Changes => ({
            items: (items, organisation, at) =>
              organisation === side && at === stage ? change(items) : items,
          });
          // The fixture's items name the fixture's organisations; rooms and probes are the same.
          const isSame = (one: EvidenceItem) =>
            one.probe === item.probe &&
            one.vantage === item.vantage &&
            (item.subject?.startsWith("!") !== true || one.subject === item.subject);
          await assertRefused(
            only((items) => items.filter((one) => !isSame(one))),
            `${side} ${stage} without ${item.probe}`,
          );
          const other = kinds[(index + 1) % kinds.length];
          if (other === undefined || isIt(other)) continue;
          await assertRefused(
            only((items) => {
              const source = items.find(
                ({ probe, vantage }) => probe === other.probe && vantage === other.vantage,
              );
              return items.map((one) => (isSame(one) && source !== undefined ? source : one));
            }),
            `${side} ${stage}: ${other.probe} for ${item.probe}`,
          );
        }
      }
    }
  });

  it("a record is refused when a room of the scope is missing, or nothing names the revision, the policy or who is left [OFF-5]", async () => {
    for (const side of SIDES) {
      const other = side === "a.test" ? "b.test" : "a.test";
      const rooms = new Set(
        itemsOf(side, other, "room").flatMap(({ subject }) => (subject?.startsWith("!") ? [subject] : [])),
      );
      for (const room of rooms) {
        const items: Changes["items"] = (all, organisation, stage) =>
          organisation === side && stage === "room" ? all.filter(({ subject }) => subject !== room) : all;
        const isInScope = itemsOf(side, other, "room").some(
          ({ subject, probe }) => subject === room && probe.startsWith("room_"),
        );
        if (isInScope) await assertRefused({ items }, `${side} without ${room}`);
      }
      for (const probe of ["reconciled", "render", "room_members", "policy_in_force", "policy_check"]) {
        const item: Changes["item"] = (one, organisation) =>
          organisation === side && one.probe === probe ? { ...one, references: ["nothing"] } : one;
        await assertRefused({ item }, `${side}: ${probe} names nothing`);
      }
    }
  });

  const ABSENCES: readonly (readonly [StageName, string, string])[] = [
    ["a2a_stop", "agents_offered", "no_agent_offered"],
    ["a2a_discovery", "agents_offered", "no_agent_offered"],
    ["a2a_discovery", "agents_consumed", "no_agent_consumed"],
    ["room", "rooms_shared", "no_room_in_scope"],
    ["policy_border", "left_alone", "left_alone_by_full"],
    ["transport", "left_alone", "left_alone_by_full"],
    ["a2a_stop", "part_managed", "unmanaged"],
  ];

  it("a record is refused when a stage is said not to apply, and its scope says otherwise [OFF-5]", async () => {
    const absent = (one: EvidenceItemBody, probe: string, reason: string): EvidenceItemBody => ({
      ...{ ...one, probe, vantage: "operator", subject: null, layer: "registry", status: null, reason },
      verdict: probe === "part_managed" ? "unknown" : "closed",
    });
    for (const sides of [["a.test"], ["b.test"], SIDES] as const) {
      const isOne = (organisation: string) => (sides as readonly string[]).includes(organisation);
      for (const [stage, probe, reason] of ABSENCES) {
        // The whole stage, and all but what the reconciler and the operator's own parts say.
        for (const keeps of [false, true]) {
          const isReplaced = (
            item: { probe: string; vantage: string },
            organisation: string,
            at: StageName,
          ) => isOne(organisation) && at === stage && !(keeps && item.probe === "reconciled");
          await assertRefused(
            {
              item: (item, organisation, at) =>
                isReplaced(item, organisation, at) ? absent(item, probe, reason) : item,
            },
            `${sides.join(" and ")}: ${stage} by ${probe}`,
          );
        }
      }
      const stops = ["a2a_stop", "a2a_discovery"];
      await assertRefused(
        {
          item: (item, organisation, stage) =>
            isOne(organisation) && stops.includes(stage)
              ? absent(item, "nothing_declared", "not_operated")
              : item,
        },
        `${sides.join(" and ")}: planes 4 and 5 do not apply`,
      );
      await assertRefused(
        {
          item: (item, organisation, stage) =>
            isOne(organisation) && stage !== "data_duties"
              ? absent(item, "nothing_declared", "not_operated")
              : item,
        },
        `${sides.join(" and ")}: no plane applies`,
      );
    }
  });

  it("a record is refused when one stage's scope is made smaller to hide what is missing [OFF-5]", async () => {
    for (const side of SIDES) {
      for (const change of [
        { agents: [] },
        { pins: [] },
        { parts: ["homeserver" as const] },
        { client: "another" },
      ]) {
        for (const stage of STAGE_NAMES) {
          await assertRefused(
            {
              stage: (predicate) =>
                predicate.organisation === side && predicate.stage === stage
                  ? { ...predicate, scope: { ...predicate.scope, ...change } }
                  : predicate,
            },
            `${side} ${stage} ${JSON.stringify(change)}`,
          );
        }
      }
    }
  });

  const WAIVED = { reason: "bad", waived_by: "staff-1", waiver: "accepted" } as const;

  /** Lists these as out of reach in a stage, and in the completion. */
  function listing(side: Side, at: StageName, subjects: readonly string[]): Changes {
    const out_of_reach = subjects.map((subject) => ({ subject, ...WAIVED }));
    return {
      stage: (one) => (one.organisation === side && one.stage === at ? { ...one, out_of_reach } : one),
      completion: (one) => ({ ...one, out_of_reach }),
    };
  }

  function roomsOf(side: Side): readonly string[] {
    const items = itemsOf(side, side === "a.test" ? "b.test" : "a.test", "room");
    const own = items.filter(({ probe, subject }) => probe.startsWith("room_") && subject !== null);
    return [...new Set(own.flatMap(({ subject }) => subject ?? []))];
  }

  it("a record is refused when a room that is listed was observed open, or one of its probes is unknown for another [OFF-5]", async () => {
    for (const side of SIDES) {
      for (const room of roomsOf(side)) {
        const about = kindsIn(side, "room").filter(({ subject }) => subject === room);
        const listed = listing(side, "room", [room]);
        for (const { probe, vantage } of about) {
          const isIt = (item: EvidenceItemBody) =>
            item.subject === room && item.probe === probe && item.vantage === vantage;
          const isOther = (item: EvidenceItemBody) => item.subject === room && !isIt(item);
          for (const answer of [
            { verdict: "open" },
            { verdict: "open", reason: "let_in", status: 200 },
          ] as const) {
            for (const others of [{}, { verdict: "unknown", status: null, reason: "timed_out" }] as const) {
              const item: Changes["item"] = (one, organisation, at) => {
                if (organisation !== side || at !== "room") return one;
                return isIt(one) ? { ...one, ...answer } : isOther(one) ? { ...one, ...others } : one;
              };
              await assertRefused({ ...listed, item }, `${side} ${room} ${probe} ${JSON.stringify(answer)}`);
            }
          }
          if (vantage !== "operator") continue;
          // Nobody has looked, and something else of the room has no answer.
          const items: Changes["items"] = (all, organisation, at) =>
            organisation === side && at === "room" ? all.filter((one) => !isIt(one)) : all;
          const item: Changes["item"] = (one, organisation, at) =>
            organisation === side && at === "room" && isOther(one) ? { ...one, verdict: "unknown" } : one;
          await assertRefused({ ...listed, items, item }, `${side} ${room} without ${probe}`);
        }
      }
    }
  });

  it("a record is refused when the reconciler did not reach a plane, whatever is listed as out of reach [OFF-5]", async () => {
    const planes = STAGE_NAMES.filter((stage) => stage !== "data_duties");
    for (const side of SIDES) {
      for (const stage of planes) {
        for (const [names, listed] of [
          [[], []],
          [[], ["weather"]],
          [["weather"], []],
          [["weather"], ["another"]],
          [["weather", "another"], ["weather"]],
          // The rooms plane alone may be signed with what the reconciler names.
          ...(stage === "room" ? [] : [[["weather"], ["weather"]]]),
        ] as const) {
          for (const reason of ["incomplete", "deferred"]) {
            const item: Changes["item"] = (one, organisation, at) =>
              organisation === side && at === stage && one.probe === "reconciled"
                ? { ...one, verdict: "unknown", reason, references: [...one.references, ...(names ?? [])] }
                : one;
            const what = `${side} ${stage} ${reason} names ${names} lists ${listed}`;
            await assertRefused({ ...listing(side, stage, listed ?? []), item }, what);
          }
        }
      }
      // Named and listed, by a reconciler that names no revision.
      const item: Changes["item"] = (one, organisation, at) =>
        organisation === side && at === "room" && one.probe === "reconciled"
          ? { ...one, verdict: "unknown", reason: "incomplete", references: [...roomsOf(side)] }
          : one;
      await assertRefused({ ...listing(side, "room", roomsOf(side)), item }, `${side} names no revision`);
      // Nothing at all was observed of any room.
      const nothing: Changes["items"] = (all, organisation, at) =>
        organisation === side && at === "room" ? all.filter(({ probe }) => probe === "reconciled") : all;
      const named: Changes["item"] = (one, organisation, at) =>
        organisation === side && at === "room"
          ? {
              ...one,
              verdict: "unknown",
              reason: "incomplete",
              references: [...one.references, ...roomsOf(side)],
            }
          : one;
      await assertRefused(
        { ...listing(side, "room", roomsOf(side)), items: nothing, item: named },
        `${side} has looked at no room`,
      );
    }
  });

  it("the tests above make more than four hundred forgeries [OFF-5]", () => {
    assert.ok(forged > 400, String(forged));
  });
});
