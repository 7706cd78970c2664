// What the partner keeps trying while the glass is broken: at every plane what its programs do, and on request
// what its people do besides. All of it with the partner's own credentials.
import type { Clock, Random } from "../../src/domain/clock.ts";
import type { RoomId } from "../../src/domain/identifiers.ts";
import { homeserverRefusal } from "../../src/federation/probes/answers.ts";
import { PartnerServer } from "../../src/federation/probes/as-server.ts";
import { invoke, probeCards, probeInvocation, requestToken } from "../../src/federation/probes/at-gateway.ts";
import { loadProbeConfig, type ProbeConfig, type ProbeUser } from "../../src/federation/probes/config.ts";
import { Person } from "../../src/federation/probes/user.ts";
import type { EvidenceItem } from "../../src/records/format/evidence-item.ts";
import { findRecord, tailOf } from "../ask/logs.ts";
import { SOURCES } from "../break-glass/contain.ts";
import { ghostFor } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import type { CompleteOrganisation } from "../organisations.ts";
import { personOf, roomOf, type Seed } from "../seed/seed.ts";
import { type AttemptFinding, type Observed, Watch, type WatchedAttempt } from "./attempt-watch.ts";
import type { Operator } from "./operator.ts";

interface Sources {
  readonly clock: Clock;
  readonly random: Random;
}

export interface PartnerAttempts {
  readonly attempts: readonly WatchedAttempt[];
  close(): Promise<void>;
}

/** How long a message is waited for before the next one is sent. */
const ARRIVAL_MS = 10_000;
const ARRIVAL_POLL_MS = 50;

/**
 * @param room that both share, created by the target
 * @param traffic whether the partner's people post and join besides
 */
export function partnerAttempts(
  config: ProbeConfig,
  room: RoomId,
  traffic: boolean,
  sources: Sources,
): PartnerAttempts {
  const server = PartnerServer.of(config, sources);
  if (server === undefined) throw new TypeError("the lab's probe files name a signing key");
  const { as, target, observer } = config;
  const person = (user: ProbeUser | undefined) => {
    if (user === undefined) throw new TypeError("the lab's probe files name their users");
    return new Person(user, config.directory, sources);
  };
  const watcher = person(observer);
  const known = `@probe:${as.serverName}`;
  const programs: WatchedAttempt[] = [
    ...(as.client === undefined
      ? []
      : [
          {
            kind: "token and invocation",
            plane: "gateway",
            attempt: async () => worst(await probeInvocation(config, sources)),
          } as const,
        ]),
    { kind: "card", plane: "card", attempt: async () => worst(await probeCards(config, sources)) },
    {
      kind: "join by its server",
      plane: "rooms",
      attempt: () => server.makeJoin(target.serverName, room, known),
    },
    {
      kind: "invitation",
      plane: "border",
      pauseMs: 200,
      attempt: () => server.invite(known, target.invitee ?? watcher.userId, watcher),
    },
    // A homeserver takes in one transaction of another at a time: more of them would hold up its real ones.
    { kind: "federation send", plane: "transport", pauseMs: 1_000, attempt: () => server.send() },
  ];
  const people = () => [
    postings(person(as.user), watcher, room, sources),
    joins(person(as.otherUser), config, room),
  ];
  return { attempts: [...programs, ...(traffic ? people() : [])], close: () => server.close() };
}

/** A token and what it is good for are one attempt: it is refused where either is. */
function worst(items: readonly EvidenceItem[]): AttemptFinding {
  const found =
    items.find(({ verdict }) => verdict === "closed") ??
    items.find(({ verdict }) => verdict === "unknown") ??
    items[0];
  if (found === undefined) throw new TypeError("a probe without a finding");
  return found;
}

/** A person posts into the room, and it counts when somebody of the target can see it. */
function postings(poster: Person, watcher: Person, room: RoomId, { clock }: Sources): WatchedAttempt {
  return {
    kind: "message of a person",
    plane: "rooms",
    pauseMs: 200,
    attempt: async () => {
      const { answer, eventId } = await poster.send(room);
      if (eventId === undefined) {
        return homeserverRefusal(answer) ?? unclear(answer.status);
      }
      for (const deadline = clock.now() + ARRIVAL_MS; clock.now() < deadline; ) {
        if (await watcher.sees(room, eventId)) return { ...unclear(200), verdict: "open", reason: "seen" };
        await clock.sleep(ARRIVAL_POLL_MS);
      }
      // It may only be late.
      return { ...unclear(200), reason: "not_seen" };
    },
  };
}

/** Another person joins the room over federation, and leaves it again. */
function joins(person: Person, { target }: ProbeConfig, room: RoomId): WatchedAttempt {
  return {
    kind: "join of a person",
    plane: "rooms",
    pauseMs: 200,
    attempt: async () => {
      const answer = await person.join(room, [target.serverName]);
      if (answer.status !== 200) return homeserverRefusal(answer) ?? unclear(answer.status);
      await person.leave(room);
      return { ...unclear(200), verdict: "open", reason: "joined" };
    },
  };
}

function unclear(status: number): AttemptFinding {
  return { verdict: "unknown", layer: "homeserver", status, reason: null };
}

// The partner's client goes on using a token that it was given before: the issuer cannot take it back, so the
// gateway must refuse it. Invariants: the token is held in memory alone; the client is that of the probe file,
// which a readmission changes, because the one before is refused for ever.

/** @param config how the organisation that breaks the glass is looked at, as the partner */
export function heldToken(config: ProbeConfig, random: Random): WatchedAttempt {
  const [agent] = config.target.agents;
  if (agent === undefined) throw new TypeError("the lab's probe files name an agent");
  let held: string | undefined;
  return {
    kind: "invocation with a held token",
    plane: "gateway",
    attempt: async () => {
      held ??= (await requestToken(config)).token;
      return invoke(agent, held, { random });
    },
  };
}

// The partner's people ask the other's agent, again and again, while the glass is broken. Counted by what the
// partner's own bridge writes into its audit file.

const ANSWER_TIMEOUT_MS = 15_000;

/** @param room of the partner's own, so that the room itself stays open to the question */
export function questionsOf(
  lab: Lab,
  seed: Seed,
  partner: CompleteOrganisation,
  publisher: CompleteOrganisation,
  room: RoomId,
  sources: { readonly clock: Clock; readonly random: Random },
): WatchedAttempt {
  const { clock } = sources;
  const ghost = ghostFor(lab, partner, publisher);
  const asker = personOf(lab, seed, partner, sources);
  return {
    kind: "question of a person",
    plane: "gateway",
    pauseMs: 200,
    attempt: async (): Promise<AttemptFinding> => {
      // A room that the publisher has put in place of one of the partner's is closed to it with the others.
      const path = `/rooms/${encodeURIComponent(room)}/state/m.room.member/${encodeURIComponent(asker.userId)}`;
      const { status, body } = await asker.request("GET", path);
      if (status === 403 || (status === 200 && body["membership"] !== "join")) {
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

// What the removed organisation keeps trying all the while: its programs and its people, at every plane.

/** A walk takes minutes: what is tried more often loads the machine, and shows no more. */
const TRY_EVERY_MS = 2_000;

/** Nothing of this kind gets through any more. */
export function isShut({ lastPass, lastRefusal }: Observed): boolean {
  return lastRefusal !== null && (lastPass === null || lastRefusal.afterMs > lastPass.afterMs);
}

/** As the counterparty, at the operator's organisation. */
export function tryAll(seed: Seed, { organisation, probeFile }: Operator) {
  const room = roomOf(seed, organisation);
  if (room === undefined) throw new TypeError(`${organisation} has no room`);
  const { attempts, close } = partnerAttempts(
    loadProbeConfig(probeFile),
    room.roomId as RoomId,
    true,
    SOURCES,
  );
  const slowly = attempts.map((one) => ({ ...one, pauseMs: TRY_EVERY_MS, attempt: () => answered(one) }));
  return { watch: new Watch(slowly, SOURCES.clock), close };
}

/** A person who wants to join hears from the own homeserver alone that no server lets it in any more. */
async function answered({ kind, attempt }: WatchedAttempt): Promise<AttemptFinding> {
  const found = await attempt();
  const { verdict, status } = found;
  if (kind !== "join of a person" || verdict !== "unknown" || status === null || status === 429) return found;
  return status < 400
    ? found
    : { ...found, verdict: "closed", reason: found.reason ?? "no_server_lets_it_in" };
}
