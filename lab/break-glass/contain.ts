// Contains a partner that keeps trying to come in, and reports when each plane was observed closed from outside.
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { type Lab, SOURCES } from "../lab.ts";
import { AttemptWatch, isShut, type Observed } from "../observe/attempt-watch.ts";
import { bystanderMessages } from "../observe/bystanders.ts";
import { type CommandResult, Operator } from "../observe/operator.ts";
import { heldToken, partnerAttempts, questionsOf } from "../observe/partner-attempts.ts";
import { comparePrograms, type ProgramsAfter, programsOf } from "../observe/restarts.ts";
import type { CompleteOrganisation } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import type { Seed } from "../seed/seed-file.ts";
import { closedPartnersIn, named } from "../status/closed-partners.ts";
import { federationStatus } from "../status/federation.ts";

const WARM_UP_MS = 90_000;
const SETTLE_MS = 20_000;
/** Within this the reconciler checks for drift several times, and corrects what it finds. */
const AGREE_MS = 60_000;

/** Which organisation contains or restores which partner, and in which lab. */
export interface Parties {
  readonly lab: Lab;
  readonly seed: Seed;
  readonly org: CompleteOrganisation;
  readonly partner: CompleteOrganisation;
}

export interface Contained {
  readonly act: "contain";
  readonly observed: readonly Observed[];
  /** When the command was given: all times of `observed` count from there. Milliseconds since the Unix epoch. */
  readonly decidedAt: number;
  /** The JSON output of the product's own commands. */
  readonly acted: unknown;
  /** The probe run in which everything agreed, or the last one. */
  readonly probed: unknown;
  /** Earlier probe runs that found a difference: an event that was sent before a room closed may arrive after it. */
  readonly earlierRuns: readonly unknown[];
  readonly programs: ProgramsAfter;
  /** What does not hold: an open plane, an affected bystander, a restart, a probe. */
  readonly problems: readonly string[];
}

/**
 * @throws DrawbridgeError `usage` when the partner is contained or removed already; `program_failed` when it is not let
 *   in everywhere to begin with
 */
export async function contain(parties: Parties, traffic: boolean, progress: Progress): Promise<Contained> {
  const { lab, org, partner } = parties;
  const closed = closedPartnersIn(lab.name, [[org, await federationStatus(lab, org)]]);
  if (closed !== undefined) {
    throw new DrawbridgeError("usage", `${closed.facts.join(", ")} already`, {
      hint: `What is in force, also after an interruption: ./task fed:break-glass status --org ${org}${named(lab.name)}. To admit it again: ${closed.commands.join(", ")}`,
    });
  }
  progress.doing("the partner tries everything once");
  const before = await programsOf(lab, org);
  const { observed, acted, decidedAt } = await whileTrying(parties, traffic, async (watch) => {
    if (!(await watch.until(({ passed }) => passed > 0, WARM_UP_MS))) {
      const missing = watch.observed().filter(({ passed }) => passed === 0);
      throw new DrawbridgeError(
        "program_failed",
        `${partner} is not let in to begin with: ${missing.map(({ kind }) => kind).join(", ")}`,
        { hint: "See ./task fed:break-glass status, and restore it; ./task fed:up proves a whole lab." },
      );
    }
    progress.note(`${partner} is let in on every plane. It is contained now.`);
    const decided = watch.countFromNow();
    const result = await runAboutPartner(parties, "contain", "--apply");
    await watch.until(isAsContained, SETTLE_MS);
    return { observed: await watch.stop(), acted: result, decidedAt: decided };
  });
  progress.done(`${org} has contained ${partner}`);
  progress.doing("the probes from outside");
  const runs = await probeUntilAgreed(parties);
  const probed = runs.at(-1);
  const programs = comparePrograms(before, await programsOf(lab, org));
  return {
    ...{ act: "contain", observed, decidedAt, acted: acted.output, programs },
    probed: probed?.output,
    earlierRuns: runs.slice(0, -1).map(({ output }) => output),
    problems: [
      ...(acted.code === 0 ? [] : [`federation contain --apply ended with ${acted.code}`]),
      ...observed.filter((one) => !isAsContained(one)).map(problemOf),
      ...programs.restarted.map((name) => `${name} was restarted`),
      ...(probed?.code === 0 ? [] : ["the probes do not agree with the registry"]),
    ],
  };
}

/** Runs one of the product's commands about the partner, as the operator of `org`. */
export function runAboutPartner(
  { lab, org, partner }: Parties,
  verb: string,
  ...options: readonly string[]
): Promise<CommandResult> {
  return new Operator(lab, org).run(["federation", verb, partner, ...options], { stderr: "inherit" });
}

/**
 * Does something while the partner keeps trying, and ends the attempts however it ends.
 * @param traffic whether the partner's people ask, post and join as well
 */
export async function whileTrying<T>(
  { lab, seed, org, partner }: Parties,
  traffic: boolean,
  work: (watch: AttemptWatch) => Promise<T>,
): Promise<T> {
  const operator = new Operator(lab, org);
  const { attempts, close } = partnerAttempts(seed, operator, traffic);
  const bystanders = await bystanderMessages(lab, seed, partner);
  const questions = traffic ? [questionsOf(lab, seed, partner, org)] : [];
  const watch = new AttemptWatch(
    [heldToken(operator), ...attempts, ...questions, ...bystanders],
    SOURCES.clock,
  );
  watch.start();
  try {
    return await work(watch);
  } finally {
    await watch.stop();
    await close();
  }
}

/** Probes until everything is as the registry says, for as long as the reconciler may still correct it. */
async function probeUntilAgreed(parties: Parties): Promise<readonly CommandResult[]> {
  const { probeFile } = new Operator(parties.lab, parties.org);
  const runs: CommandResult[] = [];
  for (const deadline = SOURCES.clock.now() + AGREE_MS; ; ) {
    const run = await runAboutPartner(parties, "probe", "--probe-config", probeFile);
    runs.push(run);
    if (run.code === 0 || SOURCES.clock.now() > deadline) return runs;
  }
}

/** Whether an attempt ended as it should: refused where its plane is closed, and let in where none concerns it. */
function isAsContained(observed: Observed): boolean {
  const { plane, lastPass, lastRefusal } = observed;
  // The transport stays open, so that bans and ACLs still reach the partner.
  return plane === null || plane === "transport"
    ? lastPass !== null && lastRefusal === null
    : isShut(observed);
}

function problemOf({ kind, plane, passed, refused, unclear }: Observed): string {
  const wrong = plane === null || plane === "transport" ? "was refused, or not answered" : "is not refused";
  return `${kind} ${wrong}: ${passed} let in, ${refused} refused, ${unclear} unclear`;
}
