// What a partner keeps trying while it is contained, restored or removed: at every plane what its programs do, and
// on request what its people do. All of it uses the partner's own credentials.
import type { RoomId } from "../../src/domain/identifiers.ts";
import { loadProbeConfig, type ProbeUser } from "../../src/federation/probes/config.ts";
import {
  invoke,
  probeCards,
  probeInvocation,
  requestToken,
} from "../../src/federation/probes/partner-at-gateway.ts";
import { partnerServer } from "../../src/federation/probes/partner-server.ts";
import { homeserverRefusal } from "../../src/federation/probes/read-answers.ts";
import { type Person, personWith } from "../../src/federation/probes/user.ts";
import type { EvidenceItem } from "../../src/records/format/evidence-item.ts";
import { findRecord, tailOf } from "../ask/logs.ts";
import { ghostFor } from "../endpoints.ts";
import { type Lab, pollFor, SOURCES } from "../lab.ts";
import type { CompleteOrganisation } from "../organisations.ts";
import { personOf, requireRoom, type Seed } from "../seed/seed-file.ts";
import type { AttemptFinding, WatchedAttempt } from "./attempt-watch.ts";
import type { Operator } from "./operator.ts";

export interface PartnerAttempts {
  readonly attempts: readonly WatchedAttempt[];
  close(): Promise<void>;
}

/** How long a message is waited for before the next one is sent. */
const ARRIVED = { timeoutMs: 10_000, everyMs: 50 };
const ANSWER_TIMEOUT_MS = 15_000;

/**
 * @param target the operator at whose organisation the partner tries
 * @param traffic whether the partner's people post and join as well
 */
export function partnerAttempts(seed: Seed, target: Operator, traffic: boolean): PartnerAttempts {
  const config = loadProbeConfig(target.probeFile);
  const room = requireRoom(seed, target.organisation).roomId as RoomId;
  const server = partnerServer(config, SOURCES);
  if (server === undefined) throw new TypeError("the lab's probe files name a signing key");
  const { as, observer, target: probed } = config;
  const person = (user: ProbeUser | undefined) => {
    if (user === undefined) throw new TypeError("the lab's probe files name their users");
    return personWith(user, config.directory, SOURCES);
  };
  const watcher = person(observer);
  const known = `@probe:${as.serverName}`;
  const programs: WatchedAttempt[] = [
    {
      kind: "token and invocation",
      plane: "gateway",
      attempt: async () => worst(await probeInvocation(config, SOURCES)),
    },
    { kind: "card", plane: "card", attempt: async () => worst(await probeCards(config, SOURCES)) },
    {
      kind: "join by its server",
      plane: "rooms",
      attempt: () => server.makeJoin(probed.serverName, room, known),
    },
    {
      kind: "invitation",
      plane: "border",
      pauseMs: 200,
      attempt: () => server.invite(known, probed.invitee ?? watcher.userId, watcher),
    },
    // A homeserver processes one transaction of another at a time: more of them would hold up its real ones.
    { kind: "federation send", plane: "transport", pauseMs: 1_000, attempt: () => server.send() },
  ];
  const people = () => [
    postings(person(as.user), watcher, room),
    joins(person(as.otherUser), watcher, probed.serverName, room),
  ];
  return { attempts: [...programs, ...(traffic ? people() : [])], close: () => server.close() };
}

/** A token and the invocation with it are one attempt, which is refused where either is. */
function worst(items: readonly EvidenceItem[]): AttemptFinding {
  const found =
    items.find(({ verdict }) => verdict === "closed") ??
    items.find(({ verdict }) => verdict === "unknown") ??
    items[0];
  if (found === undefined) throw new TypeError("a probe without a finding");
  return found;
}

/** A person posts into the room; the message counts when a person of the target sees it. */
function postings(poster: Person, watcher: Person, room: RoomId): WatchedAttempt {
  return {
    kind: "message of a person",
    plane: "rooms",
    pauseMs: 200,
    attempt: async () => {
      const { answer, eventId } = await poster.send(room);
      if (eventId === undefined) return homeserverRefusal(answer) ?? unclear(answer.status);
      const arrived = await pollFor(async () => (await watcher.sees(room, eventId)) || undefined, ARRIVED);
      // A message that has not arrived may only be late.
      return arrived
        ? { ...unclear(200), verdict: "open", reason: "arrived" }
        : { ...unclear(200), reason: "not_arrived" };
    },
  };
}

/**
 * Another person joins the room over federation, and leaves it again; the join counts when a person of the target sees it.
 * A homeserver that is still in the room, as far as it knows, lets its people join by itself.
 */
function joins(person: Person, watcher: Person, server: string, room: RoomId): WatchedAttempt {
  return {
    kind: "join of a person",
    plane: "rooms",
    pauseMs: 200,
    attempt: async () => {
      const answer = await person.join(room, [server]);
      if (answer.status !== 200) return homeserverRefusal(answer) ?? unclear(answer.status);
      const arrived = await pollFor(async () => {
        const members = await watcher.joinedFrom(room, person.serverName);
        return members?.includes(person.userId) || undefined;
      }, ARRIVED);
      await person.leave(room);
      return arrived
        ? { ...unclear(200), verdict: "open", reason: "joined" }
        : { ...unclear(200), reason: "not_arrived" };
    },
  };
}

function unclear(status: number): AttemptFinding {
  return { verdict: "unknown", layer: "homeserver", status, reason: null };
}

/**
 * The partner's client goes on using a token that it was given before: the issuer cannot revoke it, so the gateway
 * must refuse it. The token is held in memory alone.
 */
export function heldToken({ probeFile }: Operator): WatchedAttempt {
  // The probe file's client: a readmission changes it, because the one before is refused for ever.
  const config = loadProbeConfig(probeFile);
  const [agent] = config.target.agents;
  if (agent === undefined) throw new TypeError("the lab's probe files name an agent");
  let held: string | undefined;
  return {
    kind: "invocation with a held token",
    plane: "gateway",
    attempt: async () => {
      held ??= (await requestToken(config)).token;
      return invoke(agent, held, SOURCES);
    },
  };
}

/**
 * The partner's people keep asking the other's agent, in a room of the partner's own, which stays open to the
 * question. Counted by what the partner's bridge writes into its audit file.
 */
export function questionsOf(
  lab: Lab,
  seed: Seed,
  partner: CompleteOrganisation,
  publisher: CompleteOrganisation,
): WatchedAttempt {
  const { clock } = SOURCES;
  const room = requireRoom(seed, partner).roomId as RoomId;
  const ghost = ghostFor(lab, partner, publisher);
  const asker = personOf(lab, seed, partner);
  return {
    kind: "question of a person",
    plane: "gateway",
    pauseMs: 200,
    attempt: async (): Promise<AttemptFinding> => {
      // A room with which the publisher has replaced one of the partner's is closed to the partner with the others.
      const membership = await asker.membership(room);
      if (membership === "M_FORBIDDEN" || ["leave", "ban", "invite", "knock"].includes(membership)) {
        return { layer: "homeserver", status: 403, verdict: "closed", reason: "not_in_the_room" };
      }
      const audit = tailOf(lab.paths.organisation(partner).auditFile);
      const eventId = await asker.send(room, {
        msgtype: "m.text",
        body: `${ghost}: What is recorded?`,
        "m.mentions": { user_ids: [ghost] },
      });
      const record = await findRecord(audit, eventId, ghost, clock, clock.now() + ANSWER_TIMEOUT_MS);
      const found = { layer: "bridge", status: null } as const;
      if (record === undefined) return { ...found, verdict: "unknown", reason: "no_answer_yet" };
      const verdict = record.outcome === "completed" ? "open" : "closed";
      return { ...found, verdict, reason: record.terminal_reason };
    },
  };
}
