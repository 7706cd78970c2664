// Breaks the glass while the partner keeps trying, and says what was seen of it from outside.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { Progress } from "../progress.ts";
import { comparePrograms, type ProgramsAfter, programsOf } from "./programs.ts";
import { about, isAsContained, probe, type Said, type Scene, whileTrying } from "./scene.ts";
import type { Observed } from "./watch.ts";

const WARM_UP_MS = 30_000;
const SETTLE_MS = 20_000;

export interface Contained {
  readonly act: "contain";
  readonly observed: readonly Observed[];
  /** When the decision fell: all times of `observed` count from there. Milliseconds since the Unix epoch. */
  readonly decidedAt: number;
  /** What the product's own commands said. */
  readonly acted: Said["said"];
  readonly probed: Said["said"];
  readonly programs: ProgramsAfter;
  /** Whether every plane closed, nothing else did, no program was restarted, and the probes agree. */
  readonly holds: boolean;
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
        { mend: "See ./task fed:break-glass status, and restore it; ./task fed:up proves a whole lab." },
      );
    }
    progress.note(`${partner} is let in on every plane. Breaking the glass.`);
    const decided = watch.decide();
    const done = await about(scene, "contain", "--run");
    await watch.until(isAsContained, SETTLE_MS);
    return { observed: await watch.stop(), acted: done, decidedAt: decided };
  });
  progress.done(`${org} has contained ${partner}`);
  progress.doing("the probes from outside");
  const probed = await probe(scene);
  const programs = comparePrograms(before, await programsOf(lab, org));
  return {
    ...{ act: "contain", observed, decidedAt, acted: acted.said, probed: probed.said, programs },
    holds:
      acted.code === 0 &&
      probed.code === 0 &&
      observed.every(isAsContained) &&
      programs.restarted.length === 0,
  };
}
