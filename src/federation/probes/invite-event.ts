// An invitation as a partner's server would send it, to a room that does not exist: what is tried is whether
// the invitation is taken in, and nothing else comes of it (Matrix server-server API, PUT /v2/invite; room
// version 11 for hashes, redaction and event ID).
import type { Random } from "../../domain/clock.ts";
import { sha256 } from "../../domain/digest.ts";
import { canonicalJson, signWithSeed } from "../homeserver/signed-request.ts";

const ROOM_VERSION = "11";
/** How long the made-up room has existed, in events. */
const DEPTH = 3;

export interface InviteRequest {
  readonly roomId: string;
  readonly eventId: string;
  readonly path: string;
  readonly content: Readonly<Record<string, unknown>>;
}

interface Inviter {
  readonly serverName: string;
  readonly userId: string;
  /** Content of the signing key file: `ed25519 VERSION SEED`. */
  readonly signingKey: string;
}

function withoutPadding(bytes: Buffer, encoding: "base64" | "base64url"): string {
  return bytes.toString(encoding).replaceAll("=", "");
}

/** A signed invitation and where it is to be put. @param now milliseconds since the epoch */
export function inviteRequest(inviter: Inviter, invitee: string, now: number, random: Random): InviteRequest {
  const name = () => withoutPadding(random.bytes(16), "base64url");
  const roomId = `!${name()}:${inviter.serverName}`;
  // All of its members survive redaction, so the event is signed and referred to as it is.
  const event = {
    type: "m.room.member",
    room_id: roomId,
    sender: inviter.userId,
    state_key: invitee,
    content: { membership: "invite" },
    depth: DEPTH,
    origin_server_ts: now,
    prev_events: [`$${withoutPadding(random.bytes(32), "base64url")}`],
    auth_events: [`$${withoutPadding(random.bytes(32), "base64url")}`],
  };
  const hashed = { ...event, hashes: { sha256: withoutPadding(sha256(canonicalJson(event)), "base64") } };
  const [algorithm, version, seed] = inviter.signingKey.trim().split(/\s+/);
  const signature = signWithSeed(canonicalJson(hashed), seed ?? "");
  const signed = {
    ...hashed,
    signatures: { [inviter.serverName]: { [`${algorithm}:${version}`]: signature } },
  };
  const eventId = `$${withoutPadding(sha256(canonicalJson(hashed)), "base64url")}`;
  return {
    roomId,
    eventId,
    path: `/_matrix/federation/v2/invite/${encodeURIComponent(roomId)}/${encodeURIComponent(eventId)}`,
    content: {
      room_version: ROOM_VERSION,
      event: signed,
      invite_room_state: [
        {
          type: "m.room.create",
          state_key: "",
          sender: inviter.userId,
          content: { room_version: ROOM_VERSION },
        },
      ],
    },
  };
}
