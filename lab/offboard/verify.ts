// Verifies a removal record twice: by `drawbridge verify`, and by a program that knows nothing of Drawbridge, the one
// printed in docs/reference/verifying-without-drawbridge.md, with Python's securesystemslib.
// Invariant: both get the record and the public keys alone.
import { copyFileSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as z from "zod";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { PUBLIC, writeWhole } from "../../src/runtime/write-file.ts";
import type { Lab } from "../lab.ts";
import { CLONE } from "../layout.ts";
import type { Operator } from "../observe/operator.ts";
import { runDrawbridge, runProgram } from "../programs.ts";

const PAGE = join(CLONE, "docs", "reference", "verifying-without-drawbridge.md");
const REQUIREMENTS = join(CLONE, "requirements", "foreign-verifier.txt");
const Report = z.object({ verified: z.boolean() });

export interface Verified {
  /** The verdict of `drawbridge verify`. */
  readonly drawbridge: boolean;
  /** The verdict of the program with Python's securesystemslib. */
  readonly foreign: boolean;
  /** The output of that program. */
  readonly foreignSaid: string;
}

/** @throws DrawbridgeError `program_failed` when the foreign verifier cannot be installed */
export async function verify(
  lab: Lab,
  recordFile: string,
  [remover, partner]: readonly [Operator, Operator],
): Promise<Verified> {
  const { federation, trustFile, recordsPublicKey } = lab.paths.organisation(remover.organisation);
  const own = await runDrawbridge(["verify", recordFile, "--trust", trustFile, "--json"], federation);
  const folder = join(lab.paths.directory, "auditor");
  mkdirSync(folder, { recursive: true });
  copyFileSync(recordFile, join(folder, "record.json"));
  copyFileSync(recordsPublicKey(remover.organisation), join(folder, "remover.pub.pem"));
  copyFileSync(recordsPublicKey(partner.organisation), join(folder, "partner.pub.pem"));
  const python = await foreignPython(folder);
  writeWhole(join(folder, "check.py"), checkProgram(), PUBLIC);
  const { code, stdout, stderr } = await runProgram(python, ["check.py"], folder);
  return {
    drawbridge: own.code === 0 && Report.parse(JSON.parse(own.stdout)).verified,
    foreign: code === 0,
    foreignSaid: `${stdout}${stderr}`.trimEnd(),
  };
}

function checkProgram(): string {
  const program = /```python\n(.*?)```/s.exec(readFileSync(PAGE, "utf8"))?.[1];
  if (program === undefined) throw new TypeError(`${PAGE} has no program`);
  return program;
}

/** Python with the verifier's packages, installed once a lab with the hashes that are locked. */
async function foreignPython(folder: string): Promise<string> {
  const python = join(folder, "verifier", "bin", "python");
  const installed = join(folder, "verifier", "installed");
  if (existsSync(installed)) return python;
  const pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"];
  for (const [program, args] of [
    ["python3", ["-m", "venv", "--clear", "verifier"]],
    [python, [...pip, "-r", REQUIREMENTS]],
  ] as const) {
    const { code, stdout, stderr } = await runProgram(program, args, folder);
    if (code === 0) continue;
    throw new DrawbridgeError(
      "program_failed",
      `the foreign verifier cannot be installed:\n${stdout}${stderr}`,
      { hint: "It needs python3 with venv, and the package registry." },
    );
  }
  writeWhole(installed, "", PUBLIC);
  return python;
}
