// What one pass over the rooms works with.
// Invariant: tokens are given back and journals are closed however the pass ends.
import { join, resolve } from "node:path";
import type { Clock } from "../../../domain/clock.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { type RoomId, type ServerName, serverOf, type UserId } from "../../../domain/identifiers.ts";
import { readInput } from "../../../runtime/read-input.ts";
import { readSecret } from "../../../runtime/secrets.ts";
import type { FederationConfig } from "../../config.ts";
import { SignedRequests } from "../../homeserver/signed-request.ts";
import { type LentTokens, lentTokens, SynapseAdminApi } from "../../homeserver/synapse-admin-api.ts";
import { type BorderStatusClient, borderStatus } from "../border/status.ts";
import { type DesiredPlane, renderedFile } from "../plane.ts";
import { ROOMS_INTENT, RoomsIntent } from "./render.ts";
import { type RoomState, readRoomState } from "./room-state.ts";
import { Journal, type JournalEntry, journaledPartners, type RoomRecord } from "./undo-journal.ts";

export interface RoomsSession {
  readonly intent: RoomsIntent;
  readonly operator: SynapseAdminApi;
  readonly operatorId: UserId;
  /** Gives none for a user whom the homeserver does not lend; the next plan then chooses another user. */
  readonly tokens: LentTokens;
  /** The journal of each partner that is closing, or was; a drift check or a probe only reads them. */
  readonly journals: ReadonlyMap<string, Journal>;
  readonly home: Pick<BorderStatusClient, "differing" | "enforcement" | "refresh">;
  readonly signed: SignedRequests;
  readonly clock: Clock;
  readonly note: (text: string) => void;
}

export const ROOMS_AT_ONCE = 8;

export async function readRoom(session: RoomsSession, room: RoomId): Promise<RoomState | undefined> {
  const events = await session.operator.roomState(room);
  return events === undefined ? undefined : readRoomState(room, events);
}

export function recordOf({ journals }: Pick<RoomsSession, "journals">, partner: string, room: RoomId) {
  return journals.get(partner)?.room(room);
}

export function otherRecords({ journals }: RoomsSession, partner: string, room: RoomId): RoomRecord[] {
  return [...journals].flatMap(([other, journal]) => (other === partner ? [] : (journal.room(room) ?? [])));
}

export function journalOf(session: RoomsSession, partner: ServerName): Journal {
  const journal = session.journals.get(partner);
  if (journal === undefined) throw new DrawbridgeError("internal", `there is no journal of ${partner}`);
  return journal;
}

export async function announce(
  session: RoomsSession,
  partners: readonly ServerName[],
  entry: (partner: ServerName) => JournalEntry,
): Promise<void> {
  await Promise.all(partners.map((partner) => journalOf(session, partner).append(entry(partner))));
}

/** Whether the homeserver refused one step: the room is then reported, and the others go on. */
export function isRefusal(error: unknown): boolean {
  return error instanceof DrawbridgeError && error.code === "homeserver_refused";
}

/** @param options with `writes`, journals of which nothing is left are removed at the end */
export async function withSession<T>(
  config: FederationConfig,
  desired: DesiredPlane,
  { clock, note, writes }: Pick<RoomsSession, "clock" | "note"> & { readonly writes: boolean },
  work: (session: RoomsSession) => Promise<T>,
): Promise<T> {
  const { value: intent } = renderedFile(desired, ROOMS_INTENT, RoomsIntent);
  const { homeserver } = config;
  const inside = (path: string) => resolve(config.directory, path);
  const folder = join(inside(config.state), "rooms");
  const token = readSecret(homeserver.operatorToken, config.directory);
  const operator = new SynapseAdminApi(homeserver.url, token, clock);
  const signed = new SignedRequests({
    name: intent.own as ServerName,
    signingKey: readPath(inside(homeserver.signingKeyFile)),
    proxyUrl: homeserver.federationProxy,
    ca: homeserver.federationCaFile === undefined ? undefined : readPath(inside(homeserver.federationCaFile)),
  });
  const journals = new Map<string, Journal>();
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
    tokens = lentTokens(operator, operatorId, clock);
    const partners = new Set<ServerName>([
      ...intent.closing.map(({ serverName }) => serverName as ServerName),
      ...(await journaledPartners(folder)),
    ]);
    for (const one of partners) journals.set(one, new Journal(folder, one));
    const home = borderStatus(config);
    return await work({ intent, operator, operatorId, tokens, journals, home, signed, clock, note });
  } finally {
    await tokens?.release().catch(() => undefined);
    if (writes) for (const journal of journals.values()) await journal.finish();
    await signed.close();
    await operator.close();
  }
}

function readPath(path: string): string {
  const hint = "Correct homeserver.signingKeyFile and homeserver.federationCaFile.";
  return readInput(path, hint).toString("utf8");
}

/** Rooms that the homeserver lists, which lags behind, and those in which the partners' servers were sent an event. */
export async function listRooms({ operator }: RoomsSession, partners: readonly ServerName[]) {
  const [listed, ...sentTo] = await Promise.all([
    operator.rooms(),
    ...partners.map((server) => operator.destinationRooms(server)),
  ]);
  return [...new Set([...listed, ...sentTo.flat()])];
}
