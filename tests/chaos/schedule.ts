// Which faults a round has and what is asked meanwhile, from a seed. Pure.
// Invariants: a round is a function of the seed and its number alone, so that a seed repeats a run whatever its length;
// a fault ends within its round; what a schedule holds is data, and nothing here knows how a fault is made.
import { SeededRandom } from "../../lab/random-operations/seeded-random.ts";

export const BRIDGES = ["bridge-1", "bridge-2", "bridge-3"] as const;
export type BridgeName = (typeof BRIDGES)[number];

/** The programs that are killed besides the bridges. */
export const SERVERS = ["postgres", "homeserver", "envoy", "issuer", "agent"] as const;
export type ServerProgram = (typeof SERVERS)[number];

export type Target = BridgeName | ServerProgram;

/** Each bridge has a link of its own to its database and to its homeserver. `homeservers` is the one between both. */
export const LINKS = [
  ...BRIDGES.map((bridge) => `${bridge} to the database` as const),
  ...BRIDGES.map((bridge) => `${bridge} to the homeserver` as const),
  "gateway to the agent",
  "homeservers",
] as const;
export type LinkName = (typeof LINKS)[number];
export type LinkFault = "cut" | "slow" | "half_open";

/** What a request to the agent meets; `drop`: the agent gets it, and its answer is lost. */
export const AGENT_FAULTS = [429, 500, 503, "hang", "drop"] as const;
export type AgentFault = (typeof AGENT_FAULTS)[number];

export type Fault = { readonly atMs: number } & (
  | /** SIGKILL; of PostgreSQL an immediate shutdown, which recovers like a crash. */
  { readonly kind: "kill"; readonly target: Target }
  /** SIGSTOP, and SIGCONT after this time. */
  | { readonly kind: "freeze"; readonly target: Exclude<Target, "postgres">; readonly forMs: number }
  | { readonly kind: "link"; readonly link: LinkName; readonly as: LinkFault; readonly forMs: number }
  | { readonly kind: "agent"; readonly answers: AgentFault; readonly forMs: number }
  /** The clock of a bridge jumps, and back at the end of the round. */
  | { readonly kind: "clock"; readonly target: BridgeName; readonly byMs: number }
  /** The organisation of the agent contains that of the bridges, and restores it when the planes are observed closed. */
  | { readonly kind: "contain" }
);

export const ASK_KINDS = [
  "question",
  "conversation",
  "cancel",
  "redact",
  "late_key",
  "withheld_key",
] as const;
export type AskKind = (typeof ASK_KINDS)[number];

/** What is asked, in one of the rooms. */
export interface Ask {
  readonly atMs: number;
  readonly kind: AskKind;
  /** The room's place among the rooms. Those with an odd number are encrypted. */
  readonly room: number;
  /** What the question is about: the place of a section in the agent's document. */
  readonly topic: number;
  /** When it is canceled or redacted, or when its key is sent, after it was asked. */
  readonly thenMs: number;
}

export interface Round {
  readonly number: number;
  /** In the order of their times. */
  readonly faults: readonly Fault[];
  readonly questions: readonly Ask[];
}

export const ROOMS = 8;
export const TOPICS = 48;
const WINDOW_MS = 2_500;
/** A question is answered within about this time on a quiet machine. */
const WORK_MS = 900;
const BRIDGE_KILLS = { min: 6, max: 13 };
const QUESTIONS = { min: 6, max: 12 };

type Weights<T> = readonly (readonly [T, number])[];

/** What a round has besides killed bridges; what takes long to recover from, seldom. */
const EXTRAS: Weights<ServerProgram | "none" | "freeze" | "link" | "agent answers" | "clock" | "contain"> = [
  ["none", 4],
  ["postgres", 3],
  ["agent", 4],
  ["issuer", 3],
  ["envoy", 3],
  ["homeserver", 1],
  ["freeze", 4],
  ["link", 5],
  ["agent answers", 5],
  ["clock", 2],
  ["contain", 1],
];
const KILLS_OF_SERVER: Readonly<Record<ServerProgram, number>> = {
  postgres: 2,
  agent: 3,
  issuer: 2,
  envoy: 2,
  homeserver: 1,
};
const FREEZES: Weights<Exclude<Target, "postgres">> = [
  ...BRIDGES.map((bridge) => [bridge, 3] as const),
  ["homeserver", 1],
  ["envoy", 1],
  ["issuer", 1],
  ["agent", 2],
];
const PLAIN_KINDS: Weights<AskKind> = [
  ["question", 7],
  ["conversation", 1],
  ["cancel", 1],
  ["redact", 1],
];
const ENCRYPTED_KINDS: Weights<AskKind> = [...PLAIN_KINDS, ["late_key", 2]];
/** It waits for a key that never comes, and holds up its room meanwhile: not in every round. */
const WITHHELD_EVERY = 8;
const CLOCK_JUMP_MS = 180_000;

/** Spreads seeds and numbers over all states of the generator. */
function mix(seed: number, number: number): number {
  return Math.imul(seed ^ Math.imul(number + 1, 0x9e3779b1), 0x85ebca6b) >>> 0;
}

export function roundOf(seed: number, number: number): Round {
  const random = new SeededRandom(mix(seed, number));
  const questions = times(random.between(QUESTIONS.min, QUESTIONS.max), () => ask(random));
  const faults = [...bridgeKills(random, questions), ...extraFaults(random)];
  if (random.between(1, WITHHELD_EVERY) === 1) {
    questions.push({ ...ask(random), kind: "withheld_key", room: 2 * random.between(0, ROOMS / 2 - 1) + 1 });
  }
  return { number, faults: inTime(faults), questions: inTime(questions) };
}

/** While a bridge works on a question: what it has done and not recorded yet is lost with it. */
function bridgeKills(random: SeededRandom, questions: readonly Ask[]): Fault[] {
  const count = random.between(BRIDGE_KILLS.min, BRIDGE_KILLS.max);
  return times(count, () => ({
    kind: "kill",
    target: random.pick(BRIDGES),
    atMs: random.pick(questions).atMs + random.between(0, WORK_MS),
  }));
}

function extraFaults(random: SeededRandom): Fault[] {
  const extra = weighted(random, EXTRAS);
  const atMs = at(random);
  const forMs = random.between(300, WINDOW_MS);
  switch (extra) {
    case "none":
      return [];
    case "contain":
      return [{ kind: "contain", atMs }];
    case "freeze":
      return [{ kind: "freeze", target: weighted(random, FREEZES), atMs, forMs }];
    case "link": {
      const link = random.pick(LINKS);
      // The lab's own proxy between the homeservers can cut.
      const as = link === "homeservers" ? "cut" : random.pick(["cut", "slow", "half_open"] as const);
      return [{ kind: "link", link, as, atMs, forMs }];
    }
    case "agent answers":
      return [{ kind: "agent", answers: random.pick(AGENT_FAULTS), atMs, forMs }];
    case "clock":
      return [
        {
          kind: "clock",
          target: random.pick(BRIDGES),
          byMs: random.between(-CLOCK_JUMP_MS, CLOCK_JUMP_MS),
          atMs,
        },
      ];
    default:
      return times(random.between(1, KILLS_OF_SERVER[extra]), () => ({
        kind: "kill",
        target: extra,
        atMs: at(random),
      }));
  }
}

function ask(random: SeededRandom): Ask {
  const room = random.between(0, ROOMS - 1);
  return {
    atMs: at(random),
    kind: weighted(random, room % 2 === 1 ? ENCRYPTED_KINDS : PLAIN_KINDS),
    room,
    topic: random.between(0, TOPICS - 1),
    thenMs: random.between(0, 2_000),
  };
}

const at = (random: SeededRandom) => random.between(0, WINDOW_MS);

function times<Made>(count: number, make: () => Made): Made[] {
  return Array.from({ length: count }, make);
}

function inTime<Timed extends { readonly atMs: number }>(list: readonly Timed[]): readonly Timed[] {
  return list.toSorted((one, other) => one.atMs - other.atMs);
}

function weighted<T>(random: SeededRandom, weights: Weights<T>): T {
  return random.pick(weights.flatMap(([value, weight]) => times(weight, () => value)));
}

/** What a fault is counted as: `kill agent`, `link slow`. */
export function nameOf(fault: Fault): string {
  switch (fault.kind) {
    case "kill":
    case "freeze":
    case "clock":
      return `${fault.kind} ${fault.target}`;
    case "link":
      return `${fault.as} ${fault.link}`;
    case "contain":
      return fault.kind;
    case "agent":
      return `agent answers ${fault.answers}`;
  }
}

/** For people: `kill agent ×2, kill bridge-1 ×4`. */
export function titleOf(faults: readonly Fault[]): string {
  return [...Map.groupBy(faults, nameOf)]
    .map(([name, list]) => (list.length === 1 ? name : `${name} ×${list.length}`))
    .sort()
    .join(", ");
}
