// Who breaks the glass on whom, in which lab, and what both need for it.
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { RoomId } from "../../src/domain/identifiers.ts";
import { loadProbeConfig } from "../../src/federation/probes/config.ts";
import type { Lab } from "../lab.ts";
import { type Observed, Watch } from "../observe/attempt-watch.ts";
import { bystanderMessages } from "../observe/bystanders.ts";
import { heldToken, partnerAttempts, questionsOf } from "../observe/partner-attempts.ts";
import { comparePrograms, type ProgramsAfter, programsOf } from "../observe/restarts.ts";
import type { CompleteOrganisation } from "../organisations.ts";
import { typed } from "../programs.ts";
import type { Progress } from "../progress.ts";
import { roomOf, type Seed } from "../seed/seed.ts";

export const SOURCES = { clock: systemClock, random: systemRandom };

export interface Scene {
  readonly lab: Lab;
  readonly seed: Seed;
  /** Who breaks the glass. */
  readonly org: CompleteOrganisation;
  /** On whom. */
  readonly partner: CompleteOrganisation;
}

/** What one of the product's commands ended with, and its JSON. */
export interface Said {
  readonly code: number;
  readonly said: Readonly<Record<string, unknown>>;
}

/**
 * Types one of the product's commands about the partner, as the operator of `org`.
 * @throws DrawbridgeError `program_failed` when it prints no JSON
 */
export async function about({ lab, org, partner }: Scene, ...words: readonly string[]): Promise<Said> {
  const { federation, federationConfig } = lab.paths.organisation(org);
  const [verb = "", ...more] = words;
  const args = ["federation", verb, partner, "--config", federationConfig, ...more, "--json"];
  const { code, stdout } = await typed(args, federation);
  try {
    return { code, said: JSON.parse(stdout) as Said["said"] };
  } catch {
    throw new DrawbridgeError("program_failed", `drawbridge federation ${verb} ended with ${code}`, {
      hint: "What it said stands above.",
    });
  }
}

/** Looks at `org` from outside, as the partner. */
export function probe(scene: Scene): Promise<Said> {
  const { lab, org, partner } = scene;
  return about(scene, "probe", "--probe-config", lab.paths.organisation(org).probeFile(partner));
}

/**
 * Does something while the partner keeps trying, and ends the trying however it ends.
 * @param traffic whether the partner's people ask, post and join as well
 */
export async function whileTrying<T>(
  scene: Scene,
  traffic: boolean,
  work: (watch: Watch) => Promise<T>,
): Promise<T> {
  const { lab, seed, org, partner } = scene;
  const room = (of: CompleteOrganisation) => (roomOf(seed, of)?.roomId ?? "") as RoomId;
  const config = loadProbeConfig(lab.paths.organisation(org).probeFile(partner));
  const { attempts, close } = partnerAttempts(config, room(org), traffic, SOURCES);
  const bystanders = await bystanderMessages(lab, seed, partner, SOURCES);
  const questions = traffic ? [questionsOf(lab, seed, partner, org, room(partner), SOURCES)] : [];
  const held = heldToken(config, SOURCES.random);
  const watch = new Watch([held, ...attempts, ...questions, ...bystanders], SOURCES.clock);
  watch.start();
  try {
    return await work(watch);
  } finally {
    await watch.stop();
    await close();
  }
}

/** Whether an attempt ended as containment would have it: stopped, or where it stops nothing, never stopped. */
export function isAsContained({ plane, lastPass, lastRefusal }: Observed): boolean {
  // The transport stays open, so that bans and ACLs still reach the partner; bystanders are not concerned.
  if (plane === null || plane === "transport") return lastPass !== null && lastRefusal === null;
  return lastRefusal !== null && (lastPass === null || lastRefusal.afterMs > lastPass.afterMs);
}

// Breaks the glass while the partner keeps trying, and says what was seen of it from outside.

const WARM_UP_MS = 90_000;
const SETTLE_MS = 20_000;
/** Within this the reconciler has looked for drift several times over, and has put right what it found. */
const AGREE_MS = 60_000;

export interface Contained {
  readonly act: "contain";
  readonly observed: readonly Observed[];
  /** When the decision fell: all times of `observed` count from there. Milliseconds since the Unix epoch. */
  readonly decidedAt: number;
  /** What the product's own commands said. */
  readonly acted: Said["said"];
  /** The look at which everything agreed, or the last one. */
  readonly probed: Said["said"];
  /** Earlier looks that found something else: what was under way when a room closed may arrive after it. */
  readonly earlierLooks: readonly Said["said"][];
  readonly programs: ProgramsAfter;
  /** What is not as it should be: a plane that is open, something else that is not, a restart, a probe. */
  readonly problems: readonly string[];
}

/** Looks until everything is as the registry says, so long as the reconciler may still put it right. */
async function probeUntilAgreed(scene: Scene): Promise<readonly Said[]> {
  const looks: Said[] = [];
  for (const deadline = SOURCES.clock.now() + AGREE_MS; ; ) {
    const look = await probe(scene);
    looks.push(look);
    if (look.code === 0 || SOURCES.clock.now() > deadline) return looks;
  }
}

function describe({ kind, plane, passed, refused, unclear }: Observed): string {
  const wanted = plane === null || plane === "transport" ? "was refused, or not answered" : "is not refused";
  return `${kind} ${wanted}: ${passed} let in, ${refused} refused, ${unclear} unclear`;
}

/** @throws DrawbridgeError `program_failed` when the partner is not let in everywhere to begin with */
export async function contain(scene: Scene, traffic: boolean, progress: Progress): Promise<Contained> {
  const { lab, org, partner } = scene;
  progress.doing("the partner tries everything once");
  const before = await programsOf(lab, org);
  const { observed, acted, decidedAt } = await whileTrying(scene, traffic, async (watch) => {
    if (!(await watch.until(({ passed }) => passed > 0, WARM_UP_MS))) {
      const missing = watch.observed().filter(({ passed }) => passed === 0);
      throw new DrawbridgeError(
        "program_failed",
        `${partner} does not get through to begin with: ${missing.map(({ kind }) => kind).join(", ")}`,
        { hint: "See ./task fed:break-glass status, and restore it; ./task fed:up proves a whole lab." },
      );
    }
    progress.note(`${partner} is let in on every plane. Breaking the glass.`);
    const decided = watch.decide();
    const done = await about(scene, "contain", "--apply");
    await watch.until(isAsContained, SETTLE_MS);
    return { observed: await watch.stop(), acted: done, decidedAt: decided };
  });
  progress.done(`${org} has contained ${partner}`);
  progress.doing("the probes from outside");
  const looks = await probeUntilAgreed(scene);
  const probed = looks.at(-1) ?? { code: 1, said: {} };
  const programs = comparePrograms(before, await programsOf(lab, org));
  return {
    ...{ act: "contain", observed, decidedAt, acted: acted.said, programs },
    probed: probed.said,
    earlierLooks: looks.slice(0, -1).map(({ said }) => said),
    problems: [
      ...(acted.code === 0 ? [] : [`federation contain --apply ended with ${acted.code}`]),
      ...observed.filter((one) => !isAsContained(one)).map(describe),
      ...programs.restarted.map((name) => `${name} was restarted`),
      ...(probed.code === 0 ? [] : ["the probes do not agree with the registry"]),
    ],
  };
}
