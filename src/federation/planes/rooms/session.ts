// What one pass over the rooms works with.
// Invariant: tokens are given back and journals are closed however the pass ends.
import { join, resolve } from "node:path";
import type { Clock } from "../../../domain/clock.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import type { RoomId, ServerName, UserId } from "../../../domain/identifiers.ts";
import { readInput } from "../../../runtime/read-input.ts";
import { readSecret } from "../../../runtime/secrets.ts";
import type { FederationConfig } from "../../config.ts";
import { isRefusal } from "../../homeserver/api.ts";
import { type SignedRequests, signedRequests } from "../../homeserver/signed-request.ts";
import { type LentTokens, lentTokens, SynapseAdminApi } from "../../homeserver/synapse-admin-api.ts";
import { borderStatus } from "../border/runtime.ts";
import { type DesiredPlane, type Note, renderedFile } from "../plane.ts";
import { ROOMS_INTENT, RoomsIntent } from "./render.ts";
import { readRoomState } from "./room-state.ts";
import { type Journaled, journalsIn } from "./undo-journal.ts";

/** The journals are of each partner that is closing, or was; a drift check or a probe only reads them. */
export interface RoomsSession extends Journaled {
  readonly intent: RoomsIntent;
  readonly operator: SynapseAdminApi;
  readonly operatorId: UserId;
  /** Gives none for a user whom the homeserver does not lend; the next plan then chooses another user. */
  readonly tokens: LentTokens;
  readonly home: Pick<ReturnType<typeof borderStatus>, "differing" | "enforcement" | "refresh" | "rooms">;
  readonly signed: SignedRequests;
  readonly clock: Clock;
  readonly note: Note;
}

export const ROOMS_AT_ONCE = 8;

type HomeserverRooms = Pick<RoomsSession, "operator"> & { readonly intent: Pick<RoomsIntent, "own"> };

export async function readRoom({ operator }: HomeserverRooms, room: RoomId, timeoutMs?: number) {
  const events = await operator.roomState(room, timeoutMs);
  return events && readRoomState(room, events);
}

/** "unread" where this room alone cannot be read. @throws where the homeserver does not answer, and any other error */
export async function tryRoom(session: HomeserverRooms, room: RoomId) {
  return readRoom(session, room).catch(unlessDown(session, "unread"));
}

/** For `catch`: gives the value where `whyFailed` does not throw. */
export function unlessDown<const T>(session: HomeserverRooms, value: T): (error: unknown) => Promise<T> {
  return (error) => whyFailed(session, error).then(() => value);
}

/** Why a room could not be read or closed while the homeserver answers otherwise. @throws where it does not, and any other error */
export async function whyFailed({ operator, intent }: HomeserverRooms, error: unknown) {
  if (isRefusal(error)) return error;
  if (!(error instanceof DrawbridgeError) || error.code !== "homeserver_unavailable") throw error;
  await operator.operatorOf(intent.own);
  return error;
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
  const hint = "Correct homeserver.signingKeyFile and homeserver.federationCaFile.";
  const read = (path: string) => readInput(resolve(config.directory, path), hint).toString("utf8");
  const folder = join(resolve(config.directory, config.state), "rooms");
  const token = readSecret(homeserver.operatorToken, config.directory);
  let isLimited = false;
  const operator = new SynapseAdminApi(homeserver.url, token, clock, () => {
    if (!isLimited) note("the homeserver limits how often it may be asked; waiting, which can take minutes");
    isLimited = true;
  });
  const signed = signedRequests({
    name: intent.own as ServerName,
    signingKey: read(homeserver.signingKeyFile),
    proxyUrl: homeserver.federationProxy,
    ca: homeserver.federationCaFile && read(homeserver.federationCaFile),
  });
  let journals: Journaled["journals"] = new Map();
  let tokens: LentTokens | undefined;
  try {
    const operatorId = await operator.operatorOf(intent.own);
    tokens = lentTokens(operator, operatorId, clock);
    const closing = intent.closing.map(({ serverName }) => serverName);
    journals = await journalsIn(folder, closing);
    const home = borderStatus(config);
    return await work({ intent, operator, operatorId, tokens, journals, home, signed, clock, note });
  } finally {
    await tokens?.release().catch(() => undefined);
    if (writes) for (const journal of journals.values()) await journal.finish();
    await signed.close();
    await operator.close();
  }
}

/**
 * Rooms that users of ours are in, those that the homeserver lists, which lags behind or may be switched off, and those in which
 * the partners' servers were sent an event. @param unlisted what is known of the first where the border module does not say
 */
export async function listRooms(
  { operator, home }: Pick<RoomsSession, "operator" | "home">,
  partners: readonly ServerName[],
  unlisted?: (error: unknown) => Promise<readonly string[]>,
) {
  const joined = home.rooms();
  const [listed, ...others] = await Promise.all([
    operator.rooms(),
    unlisted === undefined ? joined : joined.catch(unlisted),
    ...partners.map((server) => operator.destinationRooms(server)),
  ]);
  return [...new Set([...listed, ...(others.flat() as RoomId[])])];
}
