// Probes signed by the partner's server key. Invariants: a transaction is empty; an invitation names a room that does
// not exist, and is declined at once if the observer is the invitee; a join is only prepared, never made.
import { resolve } from "node:path";
import { matrixCanonicalJson } from "../../domain/canonical-json.ts";
import { sha256 } from "../../domain/digest.ts";
import type { RoomId, ServerName } from "../../domain/identifiers.ts";
import { readInput } from "../../runtime/read-input.ts";
import { freshSigningKey, signedRequests, signJson, unpaddedBase64 } from "../homeserver/signed-request.ts";
import type { ProbeConfig } from "./config.ts";
import { isNoRoomOf, notConfigured, type ProbeResult, readHomeserverAnswer } from "./read-answers.ts";
import type { Person, ProbeSources } from "./user.ts";

/** All that stable rooms have been made with; a server that is asked names the room's own. */
const ROOM_VERSIONS = Array.from({ length: 12 }, (_, index) => `ver=${index + 1}`).join("&");

function read(file: string, directory: string): string {
  const hint = "Check the path in probe.yaml, and that this user may read the file.";
  return readInput(resolve(directory, file), hint, "secret_unavailable").toString("utf8");
}

export type PartnerServer = ReturnType<typeof serverWith>;

/** Undefined when probe.yaml names no signing key. @throws DrawbridgeError `secret_unavailable` */
export function partnerServer(config: ProbeConfig, sources: ProbeSources): PartnerServer | undefined {
  const { signingKeyFile } = config.as;
  if (signingKeyFile === undefined) return undefined;
  return serverWith(config, sources, read(signingKeyFile, config.directory));
}

/** For whoever lacks the partner's key: only the whitelist's refusal counts, which precedes the signature's check. */
export async function sendWithoutKey(config: ProbeConfig, sources: ProbeSources): Promise<ProbeResult> {
  const stranger = serverWith(config, sources, freshSigningKey(sources.random, "moment"));
  try {
    const found = await stranger.send();
    const isDenied = found.verdict === "closed" && found.reason === "federation_denied";
    return isDenied ? { ...found, references: ["signed_with=ed25519:moment"] } : notConfigured("signing_key");
  } finally {
    await stranger.close();
  }
}

export type History = "event" | "backfill";

function serverWith({ as, target, directory }: ProbeConfig, sources: ProbeSources, signingKey: string) {
  const origin = {
    ...{ name: as.serverName as ServerName, signingKey, proxyUrl: as.federationProxy },
    ca: as.federationCaFile && read(as.federationCaFile, directory),
  };
  const requests = signedRequests(origin);
  const targetName = target.serverName as ServerName;
  return {
    async send(): Promise<ProbeResult> {
      const id = sources.random.bytes(12).toString("hex");
      const at = sources.clock.now();
      const content = { origin: origin.name, origin_server_ts: at, pdus: [], edus: [] };
      const path = `/_matrix/federation/v1/send/${id}`;
      return readHomeserverAnswer(await requests.request(targetName, path, content));
    },

    /** @param observer declines the invitation, if it comes through and is for this user */
    async invite(inviter: string, invitee: string, observer: Person | undefined): Promise<ProbeResult> {
      const made = inviteRequest(origin, inviter, invitee, sources);
      const answer = await requests.request(targetName, made.path, made.content);
      if (answer.status === 200 && observer?.userId === invitee) await observer.leave(made.roomId);
      return readHomeserverAnswer(answer, [made.eventId]);
    },

    async makeJoin(server: string, room: RoomId, userId: string): Promise<ProbeResult> {
      const path = `/_matrix/federation/v1/make_join/${encodeURIComponent(room)}/${encodeURIComponent(userId)}?${ROOM_VERSIONS}`;
      const answer = await requests.request(server as ServerName, path);
      if (!isNoRoomOf(answer)) return readHomeserverAnswer(answer);
      return { verdict: "closed", layer: "room_membership", status: answer.status, reason: "not_in_room" };
    },

    /** Asks a server of the room for one event, by its ID or as the room's history before it. */
    async history(kind: History, server: string, room: RoomId, eventId: string): Promise<ProbeResult> {
      const [id, inRoom] = [encodeURIComponent(eventId), encodeURIComponent(room)];
      const path = `/_matrix/federation/v1/${kind}/${kind === "event" ? id : `${inRoom}?v=${id}&limit=1`}`;
      const answer = await requests.request(server as ServerName, path);
      const found = readHomeserverAnswer(answer, [eventId]);
      // What a server does not hold, or no longer, it gives to nobody.
      if (answer.status === 404) return { ...found, verdict: "closed", reason: "not_found" };
      if (answer.status !== 200) return found;
      const pdus = answer.body["pdus"];
      const first: unknown = Array.isArray(pdus) ? pdus[0] : undefined;
      if (first === undefined) return { ...found, verdict: "unknown", reason: "empty" };
      // Of what it may not see, a server is given the shell without content.
      const content = (first as { content?: unknown }).content;
      const isShell = typeof content !== "object" || content === null || Object.keys(content).length === 0;
      return isShell ? { ...found, verdict: "closed", reason: "redacted" } : { ...found, reason: "given" };
    },

    close: () => requests.close(),
  };
}

const ROOM_VERSION = "11";

type Origin = Parameters<typeof signedRequests>[0];

/** Matrix server-server API, PUT /v2/invite; room version 11 for hashes, redaction and event ID. */
function inviteRequest(origin: Origin, inviter: string, invitee: string, { clock, random }: ProbeSources) {
  const { name: server, signingKey } = origin;
  const identifier = (length: number) => random.bytes(length).toString("base64url");
  const roomId = `!${identifier(16)}:${server}` as RoomId;
  // All of its members survive redaction, so the event is signed and referred to as it is.
  const event = {
    type: "m.room.member",
    room_id: roomId,
    sender: inviter,
    state_key: invitee,
    content: { membership: "invite" },
    depth: 3,
    origin_server_ts: clock.now(),
    prev_events: [`$${identifier(32)}`],
    auth_events: [`$${identifier(32)}`],
  };
  const hashed = { ...event, hashes: { sha256: unpaddedBase64(sha256(matrixCanonicalJson(event))) } };
  const { keyId, signature } = signJson(hashed, signingKey);
  const eventId = `$${sha256(matrixCanonicalJson(hashed)).toString("base64url")}`;
  const creation = { type: "m.room.create", state_key: "", content: { room_version: ROOM_VERSION } };
  return {
    roomId,
    eventId,
    path: `/_matrix/federation/v2/invite/${encodeURIComponent(roomId)}/${encodeURIComponent(eventId)}`,
    content: {
      room_version: ROOM_VERSION,
      event: { ...hashed, signatures: { [server]: { [keyId]: signature } } },
      invite_room_state: [{ ...creation, sender: inviter }],
    },
  };
}
