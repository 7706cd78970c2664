// What the commands about one agent's identity share: how a result is told, and its exit code.
import process from "node:process";
import { type IdentityResult, keepEvidence } from "../../federation/agents/commit-identity.ts";
import type { Federation } from "../../federation/reconcile/context.ts";
import { ExitCode } from "./command.ts";
import { say, short } from "./federation-options.ts";
import { renderJson, renderTable } from "./output.ts";

export const IDENTITY_EXIT_CODES = `

Exit codes:
  0  changed, and every condition was seen to hold
  2  unknown partner or agent, or a configuration that is wrong; nothing was changed
  4  a guard refused, named in brackets, or the head is refused; nothing was changed
  5  changed, and something was not seen yet: do what it names, and run the same command again`;

/** Tells how it ended, and keeps the evidence. */
export function report(federation: Federation, result: IdentityResult, json: boolean): ExitCode {
  const evidence = keepEvidence(federation, result);
  for (const note of result.notes) say(`NOTE: ${note}`);
  if (json) process.stdout.write(renderJson({ ...result, evidence }));
  else process.stdout.write(textOf(result, evidence));
  return result.complete ? ExitCode.ok : ExitCode.incomplete;
}

const DONE = { rotate: "rotated", pin: "pinned", withdraw: "withdrawn" } as const;

function textOf(result: IdentityResult, evidence: string): string {
  const { act, agent, partner, committed, revision, keyId, oldKeyId, untouched, conditions } = result;
  const keys = keyId === null ? "" : ` to ${keyId}${oldKeyId === null ? "" : ` from ${oldKeyId}`}`;
  const how = committed ? `in commit ${short(revision)}` : `already, at ${short(revision)}`;
  return [
    `${agent} of ${partner} is ${DONE[act]}${keys} ${how}.\n\n`,
    renderTable(
      ["plane", "before", "after"],
      untouched.map(({ plane, before, after }) => [plane, short(before), `${short(after)} untouched`]),
    ),
    "\n",
    renderTable(
      ["", "condition", "found"],
      conditions.map((one) => [MARKS[one.verdict], one.condition, one.found]),
    ),
    ...conditions.filter(({ verdict }) => verdict !== "met").map((one) => `${one.condition}: ${one.hint}\n`),
    `\nEvidence: ${evidence}\n`,
  ].join("");
}

const MARKS = { met: "ok", not_met: "NO", unknown: "?" } as const;
