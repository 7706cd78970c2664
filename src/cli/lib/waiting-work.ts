// What the commands on delegations, intake envelopes and rooms share: the ledger, lists, and changes of one of them.
import { loadBridgeConfig } from "../../bridge/config.ts";
import { onDatabase } from "../../bridge/database.ts";
import {
  createOperations,
  type OpenDelegation,
  type OpenEnvelope,
  type Operations,
  type WaitingRoom,
} from "../../bridge/ledger/operator-commands.ts";
import { systemClock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { type CommandModule, defineCommand, fromConfigFile, OPTION } from "./command.ts";
import { ExitCode } from "./exit-codes.ts";
import { print, renderTable } from "./output.ts";

export async function onLedger<T>(
  configFile: string,
  work: (operations: Operations, now: number) => Promise<T>,
): Promise<T> {
  const config = fromConfigFile(configFile, "bridge", loadBridgeConfig);
  return await onDatabase(config, (pool) =>
    work(createOperations(pool, config.limits.noticeInterval), systemClock.now()),
  );
}

export function found<T>(value: T | undefined, what: string, list: string): T {
  if (value !== undefined) return value;
  throw new DrawbridgeError("usage", `there is no ${what}`, { hint: `Name one that \`${list}\` lists.` });
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
      const one = await onLedger(options.config, (operations, now) => find(operations, name, now));
      const shown = found(one, what, list);
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
      print(options, { result }, () => `${texts[result]}\n`);
      return result === "unchanged" ? ExitCode.failed : ExitCode.ok;
    },
  });
}

const time = (at: number | undefined) =>
  at === undefined ? "-" : `${new Date(at).toISOString().slice(0, 19)}Z`;
const words = (text: string | undefined) => (text ?? "-").replaceAll("_", " ");

export function inJson<T extends object>(value: T): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(value).map(([name, field]) => [
      name,
      typeof field === "number" && TIMES.has(name) ? new Date(field).toISOString() : (field ?? null),
    ]),
  );
}
const TIMES: ReadonlySet<string> = new Set(["admittedAt", "since", "nextAt", "deadline"]);

export function delegationTable(delegations: readonly OpenDelegation[]): string {
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

export function envelopeTable(envelopes: readonly OpenEnvelope[]): string {
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

export function roomTable(rooms: readonly WaitingRoom[]): string {
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
