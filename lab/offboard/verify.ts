// Is the record what it claims to be? Asked of `drawbridge verify`, and of tools that know nothing of Drawbridge:
// the program of docs/reference/verifying-without-drawbridge.md, as it stands there, with Python's securesystemslib.
// Invariant: both get the record and the public keys alone.
import { spawn } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { z } from "zod";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { PUBLIC, writeWhole } from "../../src/runtime/write-file.ts";
import type { Lab } from "../lab.ts";
import { CLONE } from "../layout.ts";
import type { Operator } from "../observe/operator.ts";
import { typed } from "../programs.ts";

const PAGE = join(CLONE, "docs", "reference", "verifying-without-drawbridge.md");
const REQUIREMENTS = join(CLONE, "requirements", "foreign-verifier.txt");
const Report = z.object({ verified: z.boolean() });

export interface Verified {
  /** What `drawbridge verify` says. */
  readonly drawbridge: boolean;
  /** What Python's securesystemslib says. */
  readonly foreign: boolean;
  /** The foreign verifier's own words. */
  readonly foreignSaid: string;
}

/** @throws DrawbridgeError `program_failed` when the foreign verifier cannot be installed */
export async function verify(
  lab: Lab,
  recordFile: string,
  [remover, partner]: readonly [Operator, Operator],
): Promise<Verified> {
  const { federation, trustFile, recordsPublicKey } = lab.paths.organisation(remover.organisation);
  const own = await typed(["verify", recordFile, "--trust", trustFile, "--json"], federation);
  const folder = join(lab.paths.directory, "auditor");
  mkdirSync(folder, { recursive: true });
  copyFileSync(recordFile, join(folder, "record.json"));
  copyFileSync(recordsPublicKey(remover.organisation), join(folder, "remover.pub.pem"));
  copyFileSync(recordsPublicKey(partner.organisation), join(folder, "partner.pub.pem"));
  const python = await foreignPython(folder);
  writeWhole(join(folder, "check.py"), checkProgram(), PUBLIC);
  const { code, output } = await run(python, ["check.py"], folder);
  return {
    drawbridge: own.code === 0 && Report.parse(JSON.parse(own.stdout)).verified,
    foreign: code === 0,
    foreignSaid: output.trimEnd(),
  };
}

function checkProgram(): string {
  const program = /```python\n(.*?)```/s.exec(readFileSync(PAGE, "utf8"))?.[1];
  if (program === undefined) throw new TypeError(`${PAGE} has no program`);
  return program;
}

/** Installed once a lab, with the hashes that are locked. */
async function foreignPython(folder: string): Promise<string> {
  const python = join(folder, "verifier", "bin", "python");
  const installed = join(folder, "verifier", "installed");
  if (existsSync(installed)) return python;
  const steps: readonly (readonly [string, readonly string[]])[] = [
    ["python3", ["-m", "venv", "--clear", "verifier"]],
    [
      python,
      [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--require-hashes",
        "-r",
        REQUIREMENTS,
      ],
    ],
  ];
  for (const [program, args] of steps) {
    const { code, output } = await run(program, args, folder);
    if (code !== 0) {
      throw new DrawbridgeError("program_failed", `the foreign verifier cannot be installed:\n${output}`, {
        hint: "It needs python3 with venv, and the package registry.",
      });
    }
  }
  writeWhole(installed, "", PUBLIC);
  return python;
}

function run(
  program: string,
  args: readonly string[],
  directory: string,
): Promise<{ readonly code: number; readonly output: string }> {
  return new Promise((resolve) => {
    const child = spawn(program, args, {
      cwd: directory,
      stdio: ["ignore", "pipe", "pipe"],
      env: process.env,
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8");
      stream.on("data", (chunk: string) => {
        output += chunk;
      });
    }
    child.once("error", (error) => resolve({ code: 1, output: error.message }));
    child.once("close", (code) => resolve({ code: code ?? 1, output }));
  });
}
