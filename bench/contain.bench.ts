// A whole containment at 10, 1,000 and 10,000 partners: the revision read, the registry checked, everything
// shared rendered, the commit made and the branch moved. Its reference is itself at 10.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { systemClock, systemRandom } from "../src/domain/clock.ts";
import { performAct } from "../src/federation/containment/contain-or-restore.ts";
import { openFederation, type Reporter } from "../src/federation/reconcile/context.ts";
import { openStateFolder } from "../src/federation/state/folder.ts";
import { PartnerCache } from "../src/federation/state/partner-cache.ts";
import { controlConfig, operatorGit, rendered } from "../tests/support/control-repository.ts";
import { registryFiles } from "../tests/support/sample-files.ts";
import type { Bench, BenchContext, BenchRow } from "./bench.ts";
import { median, ms, processorMs } from "./support/measure.ts";
import { size } from "./support/size.ts";

const SIZES = size([10, 1_000, 10_000], [10, 100]);
const ROUNDS = size(9, 3);
const BAR_MS = 1_000;

/** The sample organisation with so many partners that invoke one of its agents. */
function registryOf(partners: number): Map<string, string> {
  const files = new Map([...registryFiles()].filter(([path]) => !path.startsWith("registry/partners/")));
  for (let n = 0; n < partners; n++) {
    const name = `partner-${String(n).padStart(5, "0")}`;
    const lines = [
      "# A partner like many.",
      "version: 1",
      `serverName: matrix.${name}.example`,
      "classification: internal",
      `azp: ${name}-bridge`,
      `issuer: https://id.${name}.example`,
      `keyIds: {server: ["ed25519:a_${n}"], card: [${name}-card]}`,
      `gateway: {invokes: [docs-qa], clientSecret: {file: client-secrets/${name}}}`,
    ];
    files.set(`registry/partners/${name}.yaml`, `${lines.join("\n")}\n`);
  }
  return files;
}

/** A bare repository made by git itself, so that it is packed as a clone is. */
async function makeRepository(folder: string, files: ReadonlyMap<string, string>) {
  const seed = join(folder, "seed");
  for (const [path, text] of files) {
    mkdirSync(dirname(join(seed, path)), { recursive: true });
    writeFileSync(join(seed, path), text);
  }
  operatorGit(seed, "init", "--quiet", "--initial-branch=main");
  operatorGit(seed, "add", "--all");
  operatorGit(seed, "commit", "--quiet", "--message=Begin");
  operatorGit(folder, "clone", "--quiet", "--bare", "--no-local", seed, join(folder, "control.git"));
  rmSync(seed, { recursive: true });
}

async function measure(partners: number, progress: (text: string) => void) {
  const folder = mkdtempSync(join(tmpdir(), "drawbridge-bench-"));
  try {
    await makeRepository(folder, rendered(registryOf(partners)));
    const reporter: Reporter = { event: () => undefined, note: () => undefined };
    const sources = { clock: systemClock, random: systemRandom, reporter };
    const federation = await openFederation(controlConfig(folder, { path: "control.git" }), sources);
    // Each act opens the state as a command does: what is warm is on disk.
    const contain = async (n: number) => {
      const begun = performance.now();
      const state = openStateFolder(join(folder, "state"), systemRandom);
      const cache = new PartnerCache(state);
      const name = `partner-${String(n).padStart(5, "0")}`;
      const { record } = await performAct({ ...federation, state, cache }, "contain", name);
      if (record === undefined) throw new Error("nothing was contained");
      return performance.now() - begun;
    };
    const coldMs = await contain(0);
    const warm: number[] = [];
    const processorBefore = processorMs();
    for (let round = 1; round <= ROUNDS; round++) warm.push(await contain(round));
    const workMs = (processorMs() - processorBefore) / ROUNDS;
    progress(`${partners} partners: cold ${ms(coldMs)}, warm ${warm.map(ms).join(", ")}`);
    return { coldMs, workMs, warmMs: median(warm), bestMs: Math.min(...warm), worstMs: Math.max(...warm) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function run({ progress }: BenchContext): Promise<readonly BenchRow[]> {
  const rows: BenchRow[] = [];
  let reference: number | undefined;
  for (const partners of SIZES) {
    const { coldMs, workMs, warmMs, bestMs, worstMs } = await measure(partners, progress);
    reference ??= warmMs;
    rows.push({
      measure: `contain, ${partners.toLocaleString("en")} partners, known ones kept`,
      ours: `${ms(warmMs)} (cold ${ms(coldMs)})`,
      reference: `${ms(reference)} at ${SIZES[0]}`,
      bar: `≤ ${BAR_MS} ms`,
      outcome: `${ms(bestMs)} to ${ms(worstMs)}, of it ${ms(workMs)} of processor time`,
      met: warmMs <= BAR_MS,
      numbers: { ours: warmMs, reference, unit: "ms" },
    });
  }
  return rows;
}

export const bench: Bench = {
  name: "Contain",
  minutes: 3,
  description:
    "One partner of many is contained: the revision is read, the registry checked, every shared file and the " +
    "partner's own rendered, and all of it committed to a bare repository with one record, each act flushed to " +
    "disk; the median of nine. Cold reads every partner from git, as the first act on a machine does; else those " +
    "that the reconciler or an earlier act has read come from the state folder. Rooms are no part of it: how many " +
    "there are decides how long the reconciler then takes, and not the commit. Processor time counts git's too; " +
    "it says what the act costs whatever else the machine does.",
  run,
};
