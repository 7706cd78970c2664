// Who has nothing to do with it: the partner and the neutral witness go on talking, in a room of their own,
// while a third organisation breaks the glass on the partner.
import type { Clock, Random } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { parseRoomId, type RoomId } from "../../src/domain/identifiers.ts";
import type { Lab } from "../lab.ts";
import type { MatrixUser } from "../matrix-user.ts";
import { type CompleteOrganisation, WITNESS } from "../organisations.ts";
import { personOf, type Seed } from "../seed/seed.ts";
import type { AttemptFinding, WatchedAttempt } from "./watch.ts";

const ALIAS_LOCALPART = "bystanders";
const PAUSE_MS = 500;
const ARRIVAL_MS = 5_000;
const ARRIVAL_POLL_MS = 50;

interface Sources {
  readonly clock: Clock;
  readonly random: Random;
}

/** Messages between the partner and the witness, both ways; none where no witness runs. */
export async function bystanderMessages(
  lab: Lab,
  seed: Seed,
  partner: CompleteOrganisation,
  sources: Sources,
): Promise<readonly WatchedAttempt[]> {
  if (!lab.organisations.includes(WITNESS)) return [];
  const ofPartner = personOf(lab, seed, partner, sources);
  const ofWitness = personOf(lab, seed, WITNESS, sources);
  const room = await commonRoom(lab, partner, ofPartner, ofWitness);
  const messages = (kind: string, from: MatrixUser, to: MatrixUser): WatchedAttempt => ({
    kind,
    plane: null,
    pauseMs: PAUSE_MS,
    attempt: () => cross(room, from, to, sources.clock),
  });
  return [
    messages(`message to ${WITNESS}`, ofPartner, ofWitness),
    messages(`message from ${WITNESS}`, ofWitness, ofPartner),
  ];
}

/** A room that these two have joined, and nobody else ever has. */
async function commonRoom(
  lab: Lab,
  partner: CompleteOrganisation,
  ofPartner: MatrixUser,
  ofWitness: MatrixUser,
): Promise<RoomId> {
  const alias = `#${ALIAS_LOCALPART}:${lab.serverNames[partner]}`;
  const known = await ofPartner.request("GET", `/directory/room/${encodeURIComponent(alias)}`);
  const room =
    (known.status === 200 ? parseRoomId(known.body["room_id"]) : undefined) ??
    (await ofPartner.createRoom({
      preset: "private_chat",
      room_alias_name: ALIAS_LOCALPART,
      invite: [ofWitness.userId],
    }));
  const { status, body } = await ofWitness.join(room, [lab.serverNames[partner]]);
  if (status === 200) return room;
  throw new DrawbridgeError(
    "homeserver_refused",
    `${ofWitness.userId} cannot join ${alias}: ${status} ${String(body["errcode"])}`,
    { hint: "See ./task fed:status: is a link cut?" },
  );
}

async function cross(room: RoomId, from: MatrixUser, to: MatrixUser, clock: Clock): Promise<AttemptFinding> {
  const found = { layer: "homeserver", status: 200 } as const;
  const eventId = await from.send(room, { msgtype: "m.notice", body: "Between the two of us" });
  const path = `/rooms/${encodeURIComponent(room)}/event/${encodeURIComponent(eventId)}`;
  for (const deadline = clock.now() + ARRIVAL_MS; clock.now() < deadline; ) {
    if ((await to.request("GET", path)).status === 200) return { ...found, verdict: "open", reason: "seen" };
    await clock.sleep(ARRIVAL_POLL_MS);
  }
  return { ...found, verdict: "unknown", reason: "not_seen" };
}
