// What a catchup finds, made into what the transactions would have brought.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import {
  type EventsByRoom,
  FoundBudget,
  type FoundEvent,
  mergeByRoom,
  orderOf,
  type Page,
  type RawEvent,
  unknownIn,
  whileMember,
  withoutRedacted,
  withoutSuperseded,
} from "../../../../src/bridge/catchup/found-events.ts";
import { type RereadApi, transactionsOf } from "../../../../src/bridge/catchup/room-catchup.ts";
import { retry } from "../../../../src/bridge/matrix/request-result.ts";
import type { GhostMxid, RoomId } from "../../../../src/domain/identifiers.ts";

const GHOST = "@agent_docs:a.test" as GhostMxid;
const ROOM = "!r" as RoomId;

const PAGE: Page = { ghost: GHOST, room: ROOM, from: "p" };
const found = (event: RawEvent, isWhole = true, page = PAGE) => new FoundBudget().found(event, page, isWhole);
const message = (id: string): RawEvent => ({ event_id: `$${id}`, type: "m.room.message", content: { id } });
const said = (id: string) => found(message(id));
const member = (id: string, user: string, membership: string, before?: string) =>
  found({
    event_id: `$${id}`,
    type: "m.room.member",
    state_key: user,
    content: { membership },
    unsigned: before === undefined ? {} : { prev_content: { membership: before } },
  });
const ids = (events: readonly FoundEvent[] = []) => events.map(({ id }) => id.slice(1));
const window = (...events: FoundEvent[]): EventsByRoom => new Map([[ROOM, events]]);

describe("found events", () => {
  it("whileMember keeps what was said while the ghost was in the room, and its own joins and leaves [INT-8]", () => {
    const events = [
      said("1"),
      member("left", GHOST, "leave", "join"),
      said("2"),
      member("invited", GHOST, "invite", "leave"),
      said("3"),
      member("joined", GHOST, "join", "invite"),
      said("4"),
      member("renamed", GHOST, "join", "join"),
      said("5"),
    ];
    assert.deepEqual(ids(whileMember(events, GHOST)), [
      "1",
      "left",
      "invited",
      "joined",
      "4",
      "renamed",
      "5",
    ]);
  });

  it("mergeByRoom makes one sequence in the room's order of what several ghosts read, each event once [INT-8]", () => {
    const views = fc
      .integer({ min: 1, max: 30 })
      .chain((length) =>
        fc.tuple(
          fc.constant(length),
          fc.array(fc.tuple(fc.nat(length - 1), fc.nat(length - 1)), { minLength: 1, maxLength: 4 }),
        ),
      );
    fc.assert(
      fc.property(views, ([length, spans]) => {
        const all = Array.from({ length }, (_, index) => said(String(index)));
        // One ghost was there all the time; the others came, or were read, later or earlier.
        const windows = [[0, length - 1], ...spans].map(([from = 0, to = 0]) =>
          window(...all.slice(Math.min(from, to), Math.max(from, to) + 1)),
        );
        for (const order of [windows, windows.toReversed()]) {
          const merged = ids(mergeByRoom(order).get(ROOM));
          assert.deepEqual(merged.toSorted(), ids(all).toSorted());
        }
        assert.deepEqual(ids(mergeByRoom(windows).get(ROOM)), ids(all));
      }),
    );
  });

  it("an event that one ghost alone read goes before the next event that both read [INT-8]", () => {
    const early = window(said("1"), said("2"), said("3"));
    const late = window(said("3"), said("4"));
    assert.deepEqual(ids(mergeByRoom([late, early]).get(ROOM)), ["1", "2", "3", "4"]);
    assert.deepEqual(ids(mergeByRoom([early, late]).get(ROOM)), ["1", "2", "3", "4"]);
  });

  it("only a user's last membership is kept, and none that newer events supersede [INT-8]", () => {
    const read = window(
      member("1", GHOST, "invite"),
      said("2"),
      member("3", GHOST, "join"),
      member("4", "@a:a.test", "join"),
    );
    assert.deepEqual(ids(withoutSuperseded(read).get(ROOM)), ["2", "3", "4"]);
    const newer = window(member("5", GHOST, "leave"));
    assert.deepEqual(ids(withoutSuperseded(read, newer).get(ROOM)), ["2", "4"]);
  });

  it("what was removed meanwhile is not passed on, whichever window shows that, and in its own room alone [INT-8]", () => {
    const redaction = (id: string, more: RawEvent) =>
      found({ event_id: `$${id}`, type: "m.room.redaction", ...more });
    const read = window(said("1"), said("2"), said("3"), redaction("4", { redacts: "$1", content: {} }));
    const newer = window(redaction("5", { content: { redacts: "$2" } }));
    const elsewhere = new Map([["!s" as RoomId, [redaction("6", { redacts: "$3", content: {} })]]]);
    assert.deepEqual(ids(withoutRedacted(read, read, newer, elsewhere).get(ROOM)), ["3", "4"]);
  });

  it("orderOf is the room's order from the first found event on [INT-8]", () => {
    const read = new Map([
      ...window(said("1"), said("2"), said("3"), said("4")),
      ["!s" as RoomId, [said("5")]],
    ]);
    const lost = unknownIn(read, (event) => ["$1", "$3", "$5"].includes(event));
    assert.deepEqual(ids(lost.get(ROOM)), ["2", "4"]);
    assert.deepEqual(orderOf(read, [message("4"), message("2")]), new Map([[ROOM, ["$2", "$3", "$4"]]]));
  });

  /** A homeserver's pages of ten, by where they begin; what was asked of it. */
  function pages(all: readonly RawEvent[], hidden: ReadonlySet<string> = new Set()) {
    const asked: string[] = [];
    const api: RereadApi = {
      pageBack: async (_reader, _room, from) => {
        asked.push(from);
        const events = all.slice(Number(from), Number(from) + 10).reverse();
        const kept = events.filter((event) => !hidden.has(String(event["event_id"])));
        return { kind: "ok", value: { events: kept, next: undefined } };
      },
      event: async (_reader, _room, id) => {
        asked.push(id);
        return { kind: "ok", value: all.find((event) => event["event_id"] === id) ?? {} };
      },
    };
    return { api, asked };
  }

  async function made(read: EventsByRoom, api: RereadApi) {
    const transactions = [];
    for await (const one of transactionsOf(read, api)) {
      assert.ok(one.kind === "ok");
      transactions.push(one.value);
    }
    return transactions;
  }

  const ALL = Array.from({ length: 230 }, (_, index) => message(String(index)));
  const pageOf = (index: number) => ({ ...PAGE, from: String(Math.floor(index / 10) * 10) });

  it("the same events read twice make the same transactions [INT-8]", async () => {
    const { api, asked } = pages(ALL);
    const read = window(...ALL.map((event) => found(event)));
    const transactions = await made(read, api);
    assert.deepEqual(
      transactions.map(({ events }) => events.length),
      [100, 100, 30],
    );
    assert.deepEqual(transactions, await made(read, api));
    assert.equal(new Set(transactions.map(({ transactionId }) => transactionId)).size, 3);
    for (const { transactionId } of transactions) assert.match(transactionId, /^catchup-[0-9a-f]{32}$/);
    assert.deepEqual(asked, []);
  });

  it("events whose contents were not held are read again in order, each page once [INT-8]", async () => {
    const whole = await made(window(...ALL.map((event) => found(event))), pages(ALL).api);
    const { api, asked } = pages(ALL);
    // Every third was held.
    const read = window(...ALL.map((event, index) => found(event, index % 3 === 0, pageOf(index))));
    assert.deepEqual(await made(read, api), whole);
    assert.deepEqual(
      asked,
      Array.from({ length: 23 }, (_, page) => String(page * 10)),
    );
  });

  it("an event that is no longer in its page is read alone, and a refused one is left out [INT-8]", async () => {
    const { api, asked } = pages(ALL, new Set(["$7"]));
    const read = window(...ALL.slice(0, 10).map((event, index) => found(event, false, pageOf(index))));
    const [transaction] = await made(read, api);
    assert.deepEqual(transaction?.events, ALL.slice(0, 10));
    assert.deepEqual(asked, ["0", "$7"]);
    const refused: RereadApi = {
      ...api,
      event: async () => ({ kind: "refused", status: 404, errcode: "M_NOT_FOUND" }),
    };
    const [without] = await made(read, refused);
    assert.equal(without?.events.length, 9);
  });

  it("an event that cannot be read again now ends the transactions before it [INT-8]", async () => {
    const { api } = pages(ALL);
    const failing: RereadApi = {
      ...api,
      pageBack: async (reader, room, from, since) =>
        from === "150" ? retry("server_error") : await api.pageBack(reader, room, from, since),
    };
    const outcomes = [];
    const read = window(...ALL.map((event, index) => found(event, false, pageOf(index))));
    for await (const one of transactionsOf(read, failing)) outcomes.push(one.kind);
    assert.deepEqual(outcomes, ["ok", "retry"]);
  });

  it("FoundBudget bounds the contents that are held and the number of events [INT-8]", () => {
    const length = JSON.stringify(message("0")).length;
    const budget = new FoundBudget({ charactersMax: 2 * length + 1, eventsMax: 4 });
    const held = Array.from({ length: 4 }, () => {
      assert.equal(budget.isSpent, false);
      return budget.found(message("0"), PAGE, true).raw !== undefined;
    });
    assert.deepEqual(held, [true, true, false, false]);
    assert.equal(budget.isSpent, true);
  });
});
