// Makes what a pass over the rooms works with, from a deployment's configuration, and ends it again.
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Clock } from "../../../domain/clock.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { type ServerName, serverOf } from "../../../domain/identifiers.ts";
import { readSecret } from "../../../runtime/secrets.ts";
import type { FederationConfig } from "../../config.ts";
import { HomeserverApi, Pacer } from "../../homeserver/api.ts";
import { LentTokens } from "../../homeserver/lent-tokens.ts";
import { HomeserverOperator } from "../../homeserver/operator.ts";
import { SignedRequests } from "../../homeserver/signed-request.ts";
import { borderStatus } from "../border/status.ts";
import type { DesiredPlane } from "../plane.ts";
import { RoomsIntent } from "./intent.ts";
import { Journal, journaledPartners, type RoomRecords, readJournal } from "./journal.ts";
import { ROOMS_INTENT } from "./render.ts";
import type { RoomsSession } from "./session.ts";

export interface SessionOptions {
  readonly clock: Clock;
  readonly note: (text: string) => void;
  /** Whether anything will be changed: then the journals are opened for writing. */
  readonly writes: boolean;
}

/** Runs `work` with a session and ends it, tokens given back, however `work` ends. */
export async function withSession<T>(
  config: FederationConfig,
  desired: DesiredPlane,
  { clock, note, writes }: SessionOptions,
  work: (session: RoomsSession) => Promise<T>,
): Promise<T> {
  const intent = intentOf(desired);
  const { homeserver, rooms } = config;
  const inside = (path: string) => resolve(config.directory, path);
  const folder = join(inside(config.state), "rooms");
  const api = new HomeserverApi({ url: homeserver.url, clock, pacer: new Pacer(clock, rooms.pace) });
  const operator = new HomeserverOperator(api, readSecret(homeserver.operatorToken, config.directory));
  const signed = new SignedRequests({
    name: intent.own as ServerName,
    signingKey: readPath(inside(homeserver.signingKeyFile)),
    proxyUrl: homeserver.federationProxy,
    ca: homeserver.federationCaFile === undefined ? undefined : readPath(inside(homeserver.federationCaFile)),
  });
  const writable = new Map<string, Journal>();
  let tokens: LentTokens | undefined;
  try {
    const operatorId = await operator.whoami();
    if (serverOf(operatorId) !== intent.own) {
      throw new DrawbridgeError(
        "config_invalid",
        `the registry is of ${intent.own}, and the operator's token of ${serverOf(operatorId)}`,
        { hint: "Correct homeserver.url and homeserver.operatorToken, or the registry's serverName." },
      );
    }
    tokens = new LentTokens(operator, operatorId, clock);
    const partners = new Set<ServerName>([
      ...intent.closing.map(({ serverName }) => serverName as ServerName),
      ...(await journaledPartners(folder)),
    ]);
    if (writes) for (const one of partners) writable.set(one, await Journal.open(folder, one));
    const journals: ReadonlyMap<string, RoomRecords> = writes
      ? writable
      : new Map([...partners].map((one) => [one, readJournal(folder, one)]));
    return await work({
      intent,
      operator,
      operatorId,
      tokens,
      journals,
      writable,
      home: borderStatus(config),
      signed,
      clock,
      enforcementTimeoutMs: rooms.enforcementTimeout,
      note,
    });
  } finally {
    await tokens?.release().catch(() => undefined);
    for (const journal of writable.values()) await journal.finish(folder);
    await signed.close();
    await api.close();
  }
}

function intentOf(desired: DesiredPlane): RoomsIntent {
  const text = desired.files.get(ROOMS_INTENT);
  const parsed = text === undefined ? undefined : RoomsIntent.safeParse(parseJson(text));
  if (parsed?.success === true) return parsed.data;
  throw new DrawbridgeError("head_refused", `rendered/${ROOMS_INTENT} is no valid intent`, {
    hint: "Run `drawbridge federation render` and commit what it writes; nothing was applied.",
  });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function readPath(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new DrawbridgeError("config_unreadable", `cannot read ${path}`, {
      hint: "Correct homeserver.signingKeyFile and homeserver.federationCaFile.",
      cause,
    });
  }
}
