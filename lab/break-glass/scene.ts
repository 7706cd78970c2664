// Who breaks the glass on whom, in which lab, and what both need for it.
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { RoomId } from "../../src/domain/identifiers.ts";
import { loadProbeConfig } from "../../src/federation/probes/config.ts";
import type { Lab } from "../lab.ts";
import type { CompleteOrganisation } from "../organisations.ts";
import { roomOf, type Seed } from "../seed/seed.ts";
import { partnerAttempts } from "./attempts.ts";
import { bystanderMessages } from "./bystanders.ts";
import { heldToken } from "./held-token.ts";
import { typed } from "./operator.ts";
import { questionsOf } from "./questions.ts";
import { type Observed, Watch } from "./watch.ts";

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
