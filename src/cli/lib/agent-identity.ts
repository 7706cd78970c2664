// What the commands on one agent share: they change its identity in the registry, keep the evidence, and print both.
import { systemClock } from "../../domain/clock.ts";
import { type AgentParts, agentParts, keepEvidence } from "../../federation/agents/commit-and-prove.ts";
import { readOldCard } from "../../federation/agents/key-files.ts";
import type { Federation } from "../../federation/reconcile/context.ts";
import type { DeploymentOptions } from "./command.ts";
import { print, renderTable, short } from "./command.ts";
import { conditionText, openForCommand } from "./federation.ts";

type IdentityResult = Parameters<typeof keepEvidence>[1];

export async function changeIdentity<Request>(
  options: DeploymentOptions,
  change: (federation: Federation, parts: AgentParts, request: Request) => Promise<IdentityResult>,
  request: Request,
) {
  const federation = await openForCommand(options.config);
  const result = await change(federation, agentParts(federation.config, systemClock), request);
  const evidence = keepEvidence(federation, result);
  print(options, { ...result, evidence }, () => textOf(result, evidence));
  return result.complete ? "ok" : "incomplete";
}

export const OLD_CARD = { parse: readOldCard } as const;

export const PARTNER_OR_US = [
  "<partner>",
  "server name, or name of the registry file; our own server for an agent of ours",
] as const;

const DONE = { rotate: "rotated", pin: "pinned", withdraw: "withdrawn", add: "added", remove: "removed" };

function textOf(result: IdentityResult, evidence: string): string {
  const { act, agent, partner, committed, revision, keyId, oldKeyId, untouched, conditions } = result;
  const added = act === "add" ? ` with the key ${keyId}` : ` to ${keyId}`;
  const keys = keyId === null ? "" : `${added}${oldKeyId === null ? "" : ` from ${oldKeyId}`}`;
  const how = committed ? `in commit ${short(revision)}` : `already, at ${short(revision)}`;
  return [
    `${agent} of ${partner} is ${DONE[act]}${keys} ${how}.\n\n`,
    renderTable(
      ["plane", "before", "after"],
      untouched.map(({ plane, before, after }) => [plane, short(before), `${short(after)} untouched`]),
    ),
    "\n",
    conditionText(conditions),
    `\nEvidence: ${evidence}\n`,
  ].join("");
}
