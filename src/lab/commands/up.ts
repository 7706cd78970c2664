// fed:up: brings the lab to running, whatever state it is in, and proves that it works.
import { systemClock, systemRandom } from "../../domain/clock.ts";
import { labDirectory, labPaths } from "../layout.ts";
import { paletteFor, progressOn } from "../progress.ts";
import { prove } from "../proof/proof.ts";
import { renderProof } from "../proof/render.ts";
import { waitUntilReconciled } from "../reconciled.ts";
import { castOf, ensureRunning, type Found, lockLab } from "../running.ts";
import { seed } from "../seed/seed.ts";
import { wayBack } from "../way-back.ts";
import { DEFAULT_LAB, parseOptions } from "./options.ts";

const USAGE = `
Usage: ./task fed:up [--name LAB] [--with-witness] [--json]

Three organisations on real servers on this machine: starts them, or finds them running, or mends what
has died; then has each of two ask the other's agent, and the third try to get in.

  --name LAB      a lab of its own beside others; "default" when absent
  --with-witness  with a fourth homeserver, org-d, which A and B both know: it shows what a third server
                  relays. A lab that runs gains it, and keeps it
  --json          print the proof as JSON
`;

const HEADLINES: Readonly<Record<Found, string>> = {
  started: "is running",
  running: "was running already",
  mended: "had lost its supervisor; it is mended and running",
};

export async function up(args: readonly string[]): Promise<number> {
  const flag = { type: "boolean" } as const;
  const options = parseOptions(args, USAGE, { json: flag, "with-witness": flag });
  if (options === undefined) return 0;
  const name = options.text("name") ?? DEFAULT_LAB;
  const paths = labPaths(labDirectory(name));
  const clock = systemClock;
  const sources = { clock, random: systemRandom };
  const progress = progressOn(process.stderr, clock);
  const lock = await lockLab(paths, clock, progress);
  try {
    const withWitness = options.flag("with-witness");
    const { lab, found } = await ensureRunning(name, paths, clock, progress, withWitness);
    if (found === "running") progress.note(`The lab ${name} is running already; proving it once more.`);
    await waitUntilReconciled(lab, clock, progress);
    if (found !== "running") progress.done("both registries are in force on all planes");
    const closed = await wayBack(lab);
    if (closed !== undefined) {
      for (const fact of closed.facts) progress.note(`${fact}.`);
      progress.note("The lab runs, and nothing is proved of it: it would be refused. To take it back:");
      for (const command of closed.commands) progress.note(`  ${command}`);
      return 1;
    }
    const seeded = await seed(lab, sources, progress);
    progress.doing("asking, and being refused");
    const proof = await prove(lab, seeded, sources);
    progress.done("the proof");
    const opening = {
      headline: `The lab "${name}" ${HEADLINES[found]}: ${castOf(lab)} on real servers.`,
      tookMs: progress.elapsedMs(),
    };
    process.stdout.write(
      options.flag("json")
        ? `${JSON.stringify({ found, tookMs: opening.tookMs, ...proof }, null, 2)}\n`
        : renderProof(lab, proof, opening, paletteFor(process.stdout)),
    );
    return proof.failures.length === 0 ? 0 : 1;
  } finally {
    await lock.release();
  }
}
