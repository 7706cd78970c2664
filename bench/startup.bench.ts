// How long the installed command takes to start: its version, and a whole record verified.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { installPackages, packDependency, packPackages } from "../tests/support/installed-packages.ts";
import { party, removalOf } from "../tests/support/removal.ts";
import { writeFile } from "../tests/support/temporary.ts";
import type { Bench, BenchRow } from "./bench.ts";
import { size } from "./support/size.ts";

const RUNS = size(30, 3);
const MORE_MS_MAX = 100;

export const bench: Bench = {
  name: "Start-up",
  minutes: 2,
  description: `The npm package, installed into an empty folder, on the same Node.js as \`node -e 0\`. ${RUNS} runs of each, one of each in turn, after one that is not counted; medians.`,
  async run({ progress }) {
    const folder = mkdtempSync(join(tmpdir(), "drawbridge bench "));
    try {
      progress("packing and installing");
      const { drawbridge, verifier } = await packPackages(folder);
      const tarballs = [drawbridge.tarball, verifier.tarball, await packDependency(folder)];
      const bin = join(await installPackages(join(folder, "installed"), tarballs), ".bin");
      const record = await writeRecord(folder);
      const measured = measure([
        ["-e", "0"],
        [join(bin, "drawbridge"), "--version"],
        [join(bin, "drawbridge"), "verify", ...record],
        [join(bin, "drawbridge-verify"), ...record],
      ]);
      const [reference = 0, ...ours] = measured;
      const names = ["drawbridge --version", "drawbridge verify", "drawbridge-verify"];
      return names.map((name, index) => row(name, ours[index] ?? 0, reference));
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
};

function row(name: string, ours: number, reference: number): BenchRow {
  const more = ours - reference;
  return {
    measure: `${name}, ms`,
    ours: ours.toFixed(0),
    reference: `${reference.toFixed(0)} (\`node -e 0\`)`,
    bar: `≤ ${MORE_MS_MAX} ms more`,
    outcome: `${more.toFixed(0)} ms more`,
    met: more <= MORE_MS_MAX,
    numbers: { ours, reference, unit: "ms" },
  };
}

/** A verified record of a whole removal and its trust file, as arguments. */
async function writeRecord(folder: string): Promise<string[]> {
  const parties = [party("a.test"), party("b.test")] as const;
  writeFile(join(folder, "record.json"), (await removalOf(...parties, {})).bytes.toString("utf8"));
  for (const { name, pem } of parties) writeFile(join(folder, `${name}.pem`), pem);
  const keys = parties.map(({ name }) => `  - organisation: ${name}\n    keys:\n      - file: ${name}.pem\n`);
  writeFile(join(folder, "trust.yaml"), `version: 1\nparties:\n${keys.join("")}`);
  return [join(folder, "record.json"), "--trust", join(folder, "trust.yaml")];
}

/** The median time of each command in milliseconds. */
function measure(commands: readonly (readonly string[])[]): number[] {
  const times = commands.map((): number[] => []);
  for (let run = 0; run <= RUNS; run++) {
    for (const [index, words] of commands.entries()) {
      const started = performance.now();
      const { status, stderr } = spawnSync(process.execPath, words, { encoding: "utf8" });
      if (status !== 0) throw new Error(`${words.join(" ")} ended with ${status}: ${stderr}`);
      // The first run fills the compile cache.
      if (run > 0) times[index]?.push(performance.now() - started);
    }
  }
  return times.map((one) => one.sort((a, b) => a - b)[Math.floor(one.length / 2)] ?? 0);
}
