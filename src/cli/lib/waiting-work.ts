// What the commands on delegations, intake envelopes and rooms share: the ledger, lists, and changes of one of them.
import { loadBridgeConfig } from "../../bridge/config.ts";
import { onDatabase } from "../../bridge/database.ts";
import type { OpenDelegation, OpenEnvelope, Operations } from "../../bridge/ledger/operator-commands.ts";
import { createOperations } from "../../bridge/ledger/operator-commands.ts";
import { systemClock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { type CommandModule, defineCommand, fromConfigFile, OPTION, print, renderRows } from "./command.ts";

export function onLedger<T>(file: string, work: (operations: Operations, now: number) => Promise<T>) {
  const config = fromConfigFile(file, "bridge", loadBridgeConfig);
  const { noticeInterval } = config.limits;
  return onDatabase(config, (pool) => work(createOperations(pool, noticeInterval), systemClock.now()));
}

export function found<T>(value: T | undefined, what: string, list: string): T {
  if (value !== undefined) return value;
  throw notListed(`there is no ${what}`, list);
}

export function notListed(message: string, list: string): DrawbridgeError {
  return new DrawbridgeError("usage", message, { hint: `Name one that \`${list}\` lists.` });
}

export interface Subject<T> {
  readonly argument: readonly [name: `<${string}>`, description: string];
  readonly what: string;
  readonly list: string;
  readonly find: (operations: Operations, name: string, now: number) => Promise<T | undefined>;
}

export function showing<T extends object>(
  { argument, what, list, find }: Subject<T>,
  help: string,
  table: (rows: readonly T[]) => string,
): CommandModule {
  return defineCommand({
    ...{ arguments: [argument], options: [OPTION.bridge, OPTION.json], help },
    async run([name], options) {
      const shown = found(await onLedger(options.config, (all, now) => find(all, name, now)), what, list);
      print(options, inJson(shown), () => table([shown]));
    },
  });
}

/** Changes one thing and says how; fails where there is none, and ends with exit code 1 where nothing was changed. */
export function changing<T, Result extends string>(
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
      const isChanged = result !== "unchanged";
      print(options, { result }, () => `${texts[result]}${isChanged ? "" : ": nothing was changed"}\n`);
      return isChanged ? "ok" : "failed";
    },
  });
}

const time = (ms?: number) => (ms === undefined ? "-" : `${new Date(ms).toISOString().slice(0, 19)}Z`);
const words = (text: string | undefined) => (text ?? "-").replaceAll("_", " ");

export function inJson<T extends object>(value: T): Record<string, unknown> {
  const shown = (name: string, field: unknown) =>
    typeof field === "number" && TIMES.has(name) ? new Date(field).toISOString() : (field ?? null);
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, shown(name, field)]));
}
const TIMES: ReadonlySet<string> = new Set(["admittedAt", "since", "nextAt", "deadline"]);

export function delegationTable(delegations: readonly OpenDelegation[]): string {
  return renderRows(delegations, {
    ID: (one) => one.id,
    AGENT: (one) => one.agent,
    STATE: (one) => words(one.state),
    "WAITS FOR": ({ cancelRequested, waitsFor }) =>
      cancelRequested && waitsFor !== undefined ? "its cancellation" : words(waitsFor),
    BEHIND: (one) => one.behind ?? "-",
    SINCE: (one) => time(one.since),
    "NEXT TRY": (one) => time(one.nextAt),
    TRIES: (one) => String(one.attempts),
    "LAST REASON": (one) => one.reason ?? one.lastReason ?? "-",
    ROOM: (one) => one.room,
    EVENT: (one) => one.event,
  });
}

export function envelopeTable(envelopes: readonly OpenEnvelope[]): string {
  return renderRows(envelopes, {
    EVENT: (one) => one.event,
    STATE: (one) => one.reason ?? words(one.state),
    "WAITS FOR": (one) => words(one.waitsFor),
    SINCE: (one) => time(one.since),
    "NEXT TRY": (one) => time(one.nextAt),
    UNTIL: (one) => time(one.deadline),
    TRIES: (one) => String(one.attempts),
    "KEY REQUESTS": (one) => String(one.keyRequests),
    "HOLDS ITS ROOM": (one) => (one.holdsRoom ? "yes" : "no"),
    ROOM: (one) => one.room,
  });
}

export function roomTable(rooms: Awaited<ReturnType<Operations["rooms"]>>): string {
  return renderRows(rooms, {
    ROOM: (one) => one.room,
    ENCRYPTED: (one) => (one.encrypted ? "yes" : "no"),
    DELEGATIONS: (one) => String(one.delegations),
    ENVELOPES: (one) => String(one.envelopes),
    HEAD: (one) => one.head ?? "-",
    SINCE: (one) => time(one.since),
  });
}
