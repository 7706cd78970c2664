// Breaks the glass while the partner keeps trying, and says what was seen of it from outside.
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { Progress } from "../progress.ts";
import { comparePrograms, type ProgramsAfter, programsOf } from "./programs.ts";
import { about, isAsContained, probe, type Said, type Scene, SOURCES, whileTrying } from "./scene.ts";
import type { Observed } from "./watch.ts";

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
