// A server of another organisation as a test's Synapse sees it: it signs its requests and events, and whatever the rules of a
// room forbid it may send (Matrix server-server API). Its key is put into Synapse's database, since nobody answers for it.
import { createPrivateKey, createPublicKey } from "node:crypto";
import pg from "pg";
import { matrixCanonicalJson } from "../../../../src/domain/canonical-json.ts";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import { sha256 } from "../../../../src/domain/digest.ts";
import type { RoomId, UserId } from "../../../../src/domain/identifiers.ts";
import {
  freshSigningKey,
  signJson,
  unpaddedBase64,
} from "../../../../src/federation/homeserver/signed-request.ts";
import type { TestSynapse, TestUser } from "../../../support/synapse.ts";

export const OUTSIDE = "evil.example";
const KEY_HEAD = Buffer.from("302e020100300506032b657004220420", "hex");
const VERSION = "11";

type Made = { readonly id: string; readonly pdu: Record<string, unknown> };

export async function outsideServer(synapse: TestSynapse) {
  const key = freshSigningKey(systemRandom, "k");
  const seed = Buffer.from(key.split(" ")[2] ?? "", "base64");
  const secret = createPrivateKey({ key: Buffer.concat([KEY_HEAD, seed]), format: "der", type: "pkcs8" });
  const spoken = createPublicKey(secret).export({ format: "der", type: "spki" }) as Buffer;
  await publish(synapse.databaseUrl, unpaddedBase64(spoken.subarray(-32)));

  const request = async (method: string, path: string, content?: unknown) => {
    const body = content !== undefined && { content };
    const signed = signJson({ method, uri: path, origin: OUTSIDE, destination: "a.test", ...body }, key);
    const { keyId, signature } = signed;
    const authorization = `X-Matrix origin="${OUTSIDE}",destination="a.test",key="${keyId}",sig="${signature}"`;
    const answer = await fetch(`${synapse.federationUrl}${path}`, {
      method,
      headers: { "content-type": "application/json", authorization },
      ...(content !== undefined && { body: JSON.stringify(content) }),
    });
    const value = (await answer.json()) as Record<string, unknown>;
    if (!answer.ok) throw new Error(`${method} ${path}: HTTP ${answer.status} ${JSON.stringify(value)}`);
    return value;
  };

  /** An event of room version 11, signed as it is after a redaction. */
  const made = (event: Record<string, unknown>): Made => {
    const full = { ...event, origin_server_ts: systemClock.now() };
    const hashed = { ...full, hashes: { sha256: unpaddedBase64(sha256(matrixCanonicalJson(full))) } };
    const { membership } = event["content"] as { membership?: string };
    const kept = { ...hashed, content: membership === undefined ? {} : { membership } };
    const { keyId, signature } = signJson(kept, key);
    const id = `$${sha256(matrixCanonicalJson(kept)).toString("base64url")}`;
    return { id, pdu: { ...hashed, signatures: { [OUTSIDE]: { [keyId]: signature } } } };
  };
  const unknown = () => [`$${systemRandom.bytes(32).toString("base64url")}`];

  return {
    /** Invites a user of the test's server to a room that this server is not in. */
    invite: async (room: RoomId, invitee: UserId, sender: UserId) => {
      const of = { type: "m.room.member", room_id: room, sender, state_key: invitee, depth: 3 };
      const content = { membership: "invite" };
      const { id, pdu } = made({ ...of, content, prev_events: unknown(), auth_events: unknown() });
      const create = { type: "m.room.create", state_key: "", content: { room_version: VERSION }, sender };
      await request(
        "PUT",
        `/_matrix/federation/v2/invite/${encodeURIComponent(room)}/${encodeURIComponent(id)}`,
        { room_version: VERSION, event: pdu, invite_room_state: [create] },
      );
    },

    join: async (room: RoomId, user: UserId): Promise<Made> => {
      const path = (what: string, id: string) =>
        `/_matrix/federation/${what}/${encodeURIComponent(room)}/${encodeURIComponent(id)}`;
      const { event } = await request("GET", `${path("v1/make_join", user)}?ver=${VERSION}`);
      const { origin: _, ...template } = event as Record<string, unknown>;
      const join = made({ ...template, content: { membership: "join" } });
      await request("PUT", path("v2/send_join", join.id), join.pdu);
      return join;
    },

    /** Sends an event that follows `after`, and is allowed by the state events `allowedBy`. */
    send: async (
      event: Record<string, unknown>,
      after: string,
      allowedBy: readonly string[],
      depth: number,
    ) => {
      const one = made({ ...event, depth, prev_events: [after], auth_events: allowedBy });
      const path = `/_matrix/federation/v1/send/${systemRandom.bytes(8).toString("hex")}`;
      const now = systemClock.now();
      const sent = { origin: OUTSIDE, origin_server_ts: now, pdus: [one.pdu], edus: [] };
      const { pdus } = (await request("PUT", path, sent)) as { pdus: Record<string, { error?: string }> };
      if (pdus[one.id]?.error !== undefined) throw new Error(`refused: ${pdus[one.id]?.error}`);
      return one.id;
    },
  };
}

async function publish(databaseUrl: string, publicKey: string): Promise<void> {
  const now = systemClock.now();
  const until = now + 1e10;
  const verify_keys = { "ed25519:k": { key: publicKey } };
  const answer = JSON.stringify({ server_name: OUTSIDE, valid_until_ts: until, verify_keys });
  const db = new pg.Client({ connectionString: databaseUrl });
  await db.connect();
  await db.query(
    `INSERT INTO server_keys_json (server_name, key_id, from_server, ts_added_ms, ts_valid_until_ms, key_json)
     VALUES ($1, 'ed25519:k', $1, $2, $3, $4)`,
    [OUTSIDE, now, until, Buffer.from(answer)],
  );
  await db.end();
}

/** The ID of a state event of a room. */
export async function stateId(user: TestUser, room: RoomId, type: string): Promise<string> {
  const state = (await user.call("GET", `/rooms/${encodeURIComponent(room)}/state`)) as unknown;
  const found = (state as { type: string; event_id: string }[]).find((event) => event.type === type);
  return found?.event_id ?? "";
}
