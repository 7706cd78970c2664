// drawbridge delegation, envelope and room: the questions that a bridge has taken, the encrypted events that wait for their
// keys, and the rooms in which either waits, and behind what.
import { loadBridgeConfig } from "../bridge/config.ts";
import { onDatabase } from "../bridge/database.ts";
import {
  createOperations,
  type OpenDelegation,
  type OpenEnvelope,
  type Operations,
  type WaitingRoom,
} from "../bridge/ledger/operator-commands.ts";
import { systemClock } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { type CommandModule, defineCommand, fromConfigFile, OPTION } from "./lib/command.ts";
import { ExitCode, print, renderTable } from "./lib/output.ts";

async function onLedger<T>(file: string, work: (operations: Operations, now: number) => Promise<T>) {
  const config = fromConfigFile(file, "bridge", loadBridgeConfig);
  return await onDatabase(config, (pool) =>
    work(createOperations(pool, config.limits.noticeInterval), systemClock.now()),
  );
}

function found<T>(value: T | undefined, what: string, list: string): T {
  if (value !== undefined) return value;
  throw new DrawbridgeError("usage", `there is no ${what}`, { hint: `Name one that \`${list}\` lists.` });
}

interface Subject<T> {
  readonly argument: readonly [name: `<${string}>`, description: string];
  readonly what: string;
  readonly list: string;
  readonly find: (operations: Operations, name: string, now: number) => Promise<T | undefined>;
}

function showing<T extends object>(
  { argument, what, list, find }: Subject<T>,
  help: string,
  table: (rows: readonly T[]) => string,
): CommandModule {
  return defineCommand({
    ...{ arguments: [argument], options: [OPTION.bridge, OPTION.json], help },
    async run([name], options) {
      const one = await onLedger(options.config, (operations, now) => find(operations, name, now));
      const shown = found(one, what, list);
      print(options, inJson(shown), () => table([shown]));
    },
  });
}

/** Changes one thing and says how; fails where there is none, and ends with exit code 1 where nothing was changed. */
function changing<T, Result extends string>(
  { argument, what, list, find }: Subject<T>,
  help: string,
  change: (operations: Operations, one: T, now: number) => Promise<Result>,
  texts: Readonly<Record<Result, string>>,
): CommandModule {
  return defineCommand({
    ...{ arguments: [argument], options: [OPTION.bridge, OPTION.json], help },
    async run([name], options) {
      const result = await onLedger(options.config, async (operations, now) =>
        change(operations, found(await find(operations, name, now), what, list), now),
      );
      print(options, { result }, () => `${texts[result]}\n`);
      return result === "unchanged" ? ExitCode.failed : ExitCode.ok;
    },
  });
}

const time = (at: number | undefined) =>
  at === undefined ? "-" : `${new Date(at).toISOString().slice(0, 19)}Z`;
const words = (text: string | undefined) => (text ?? "-").replaceAll("_", " ");

function inJson<T extends object>(value: T): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(value).map(([name, field]) => [
      name,
      typeof field === "number" && TIMES.has(name) ? new Date(field).toISOString() : (field ?? null),
    ]),
  );
}
const TIMES: ReadonlySet<string> = new Set(["admittedAt", "since", "nextAt", "deadline"]);

function delegationTable(delegations: readonly OpenDelegation[]): string {
  return renderTable(
    "ID/AGENT/STATE/WAITS FOR/BEHIND/SINCE/NEXT TRY/TRIES/LAST REASON/ROOM/EVENT".split("/"),
    delegations.map((one) => [
      one.id,
      one.agent,
      words(one.state),
      one.cancelRequested && one.waitsFor !== undefined ? "its cancellation" : words(one.waitsFor),
      one.behind ?? "-",
      time(one.since),
      time(one.nextAt),
      String(one.attempts),
      one.reason ?? one.lastReason ?? "-",
      one.room,
      one.event,
    ]),
  );
}

function envelopeTable(envelopes: readonly OpenEnvelope[]): string {
  return renderTable(
    "EVENT/STATE/WAITS FOR/SINCE/NEXT TRY/UNTIL/TRIES/KEY REQUESTS/HOLDS ITS ROOM/ROOM".split("/"),
    envelopes.map((one) => [
      one.event,
      one.reason ?? words(one.state),
      words(one.waitsFor),
      time(one.since),
      time(one.nextAt),
      time(one.deadline),
      String(one.attempts),
      String(one.keyRequests),
      one.holdsRoom ? "yes" : "no",
      one.room,
    ]),
  );
}

function roomTable(rooms: readonly WaitingRoom[]): string {
  return renderTable(
    ["ROOM", "ENCRYPTED", "DELEGATIONS", "ENVELOPES", "HEAD", "SINCE"],
    rooms.map((one) => [
      one.room,
      one.encrypted ? "yes" : "no",
      String(one.delegations),
      String(one.envelopes),
      one.head ?? "-",
      time(one.since),
    ]),
  );
}

const OF_ROOM = ["--room <room>", "only those of this room"] as const;

const DELEGATION: Subject<OpenDelegation> = {
  argument: ["<id>", "the delegation's number"],
  what: "such delegation",
  list: "drawbridge delegation list",
  find: (operations, id, now) => operations.delegation(delegationId(id), now),
};

function delegationId(text: string): string {
  if (/^[0-9]{1,18}$/.test(text)) return text;
  throw new DrawbridgeError("usage", "a delegation is named by its number", {
    hint: `Name one that \`${DELEGATION.list}\` lists.`,
  });
}

export const delegation = {
  listCommand: defineCommand({
    options: [OPTION.bridge, OF_ROOM, OPTION.json],
    help: `
The oldest come first. WAITS FOR: nothing (a bridge works on it), its turn (BEHIND names the delegation or the encrypted
event at the head of its room), next try (after a failure, for LAST REASON), the agent (its task runs), the asker (the agent has
asked something back), the homeserver (an answer or a question could not be delivered yet), a bridge
(it is due, and no bridge has taken it).`,
    async run(_, { config, room, json }) {
      const open = await onLedger(config, (operations, now) => operations.delegations(now, room));
      print({ json }, open.map(inJson), () => delegationTable(open));
    },
  }),
  showCommand: showing(
    DELEGATION,
    `
The columns are those of \`${DELEGATION.list}\`. Of an ended delegation, LAST REASON is why it ended.`,
    delegationTable,
  ),
  cancelCommand: changing(
    DELEGATION,
    `
The asker is told, and the room continues. A bridge that works on the delegation ends it within a third of
limits.lease, and tells the agent to cancel its task. Exit code 1: it is not open.`,
    async (operations, { id }, now) => (await operations.cancelDelegation(id, now)) ?? "unchanged",
    {
      ended: "canceled",
      requested: "the bridge that works on it will end it",
      unchanged: "it is not open: nothing was changed",
    },
  ),
  retryCommand: changing(
    DELEGATION,
    `
Ends a back-off: a bridge tries it within a second, and its dispatch deadline or reply deadline begins anew. It still
waits for its turn when another question is at the head of its room. An ended delegation cannot be tried again: its
content was deleted. Exit code 1: it is not open, or a bridge works on it.`,
    async (operations, { id }, now) => ((await operations.retryDelegation(id, now)) ? "due" : "unchanged"),
    { due: "due now", unchanged: "it is not open, or a bridge works on it: nothing was changed" },
  ),
};

const ENVELOPE: Subject<OpenEnvelope> = {
  argument: ["<event>", "the event ID of the encrypted event"],
  what: "such encrypted event",
  list: "drawbridge envelope list",
  find: (operations, event) => operations.envelope(event),
};

export const envelope = {
  listCommand: defineCommand({
    options: [OPTION.bridge, OF_ROOM, OPTION.json],
    help: `
The oldest come first. An event holds its room for limits.roomGate after it came, and waits for its key until UNTIL.`,
    async run(_, options) {
      const open = await onLedger(options.config, (operations) => operations.envelopes(options.room));
      print(options, open.map(inJson), () => envelopeTable(open));
    },
  }),
  showCommand: showing(ENVELOPE, "", envelopeTable),
  cancelCommand: changing(
    ENVELOPE,
    `
The event is never read, and its room continues. Exit code 1: it does not wait.`,
    async (operations, { event }, now) =>
      (await operations.cancelEnvelope(event, now)) ? "ended" : "unchanged",
    { ended: "the wait has ended", unchanged: "it does not wait: nothing was changed" },
  ),
  retryCommand: changing(
    ENVELOPE,
    `
Exit code 1: it does not wait, or a bridge works on it.`,
    async (operations, { event }, now) =>
      (await operations.retryEnvelope(event, now)) ? "due" : "unchanged",
    { due: "due now", unchanged: "it does not wait, or a bridge works on it: nothing was changed" },
  ),
};

export const room = {
  listCommand: defineCommand({
    options: [OPTION.bridge, OPTION.json],
    help: `
The room with the oldest open question comes first. HEAD: the delegation (a number) or the encrypted event whose turn
it is. SINCE: when the oldest open question came.`,
    async run(_, options) {
      const rooms = await onLedger(options.config, (operations) => operations.rooms());
      print(options, rooms.map(inJson), () => roomTable(rooms));
    },
  }),
  showCommand: defineCommand({
    arguments: [["<room>", "the room ID"]],
    options: [OPTION.bridge, OPTION.json],
    help: `
The columns are those of the lists of rooms, delegations and encrypted events.`,
    async run([room], options) {
      const [[first], delegations, envelopes] = await onLedger(options.config, (operations, now) =>
        Promise.all([operations.rooms(room), operations.delegations(now, room), operations.envelopes(room)]),
      );
      const summary = found(first, "open work in that room", "drawbridge room list");
      const open = { delegations: delegations.map(inJson), envelopes: envelopes.map(inJson) };
      print(options, { ...inJson(summary), ...open }, () =>
        [roomTable([summary]), delegationTable(delegations), envelopeTable(envelopes)].join("\n"),
      );
    },
  }),
};
