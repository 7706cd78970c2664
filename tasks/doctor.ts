// Tells what this machine lacks for the project, and the hint of each.
import { renderJson } from "../src/cli/lib/command.ts";
import type { Finding } from "./doctor/finding.ts";
import { checkClonePath, checkDisk, checkMemory, checkPorts, checkPostgres } from "./doctor/machine.ts";
import {
  checkGit,
  checkJava,
  checkLabPrograms,
  checkNode,
  checkNpm,
  checkPython,
} from "./doctor/programs.ts";

const CHECKS: readonly (() => Finding | Promise<Finding>)[] = [
  checkNode,
  checkNpm,
  checkPython,
  checkLabPrograms,
  checkJava,
  checkGit,
  checkPostgres,
  checkDisk,
  checkMemory,
  checkPorts,
  checkClonePath,
];

const MARKS: Readonly<Record<Finding["status"], string>> = { ok: "ok", note: "note", problem: "PROBLEM" };

function render(finding: Finding): string {
  const hint = finding.hint === undefined ? "" : `${" ".repeat(9)}${finding.hint}\n`;
  return `${MARKS[finding.status].padEnd(9)}${finding.name}: ${finding.found}\n${hint}`;
}

export async function doctor(args: readonly string[]): Promise<number> {
  const findings: Finding[] = [];
  for (const check of CHECKS) findings.push(await check());
  process.stdout.write(args.includes("--json") ? renderJson({ findings }) : findings.map(render).join(""));
  return findings.some(({ status }) => status === "problem") ? 1 : 0;
}
