// What the partner keeps trying while the glass is broken: at every plane what its programs do, and on request
// what its people do besides. All of it with the partner's own credentials.
import type { Clock, Random } from "../../src/domain/clock.ts";
import type { RoomId } from "../../src/domain/identifiers.ts";
import { homeserverRefusal } from "../../src/federation/probes/answers.ts";
import { PartnerServer } from "../../src/federation/probes/as-server.ts";
import { probeCards, probeInvocation } from "../../src/federation/probes/at-gateway.ts";
import type { ProbeConfig, ProbeUser } from "../../src/federation/probes/config.ts";
import { Person } from "../../src/federation/probes/user.ts";
import type { EvidenceItem } from "../../src/records/format/evidence-item.ts";
import type { AttemptFinding, WatchedAttempt } from "./watch.ts";

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
