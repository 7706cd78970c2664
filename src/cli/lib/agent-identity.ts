// What the commands about one agent share: how they open a deployment and report a result.
import { systemClock } from "../../domain/clock.ts";
import { type IdentityResult, keepEvidence } from "../../federation/agents/commit-identity.ts";
import { agentParts } from "../../federation/agents/proof.ts";
import type { FederationConfig } from "../../federation/config.ts";
import type { Federation } from "../../federation/reconcile/context.ts";
import { ExitCode } from "./exit-codes.ts";
import { openForCommand } from "./federation.ts";
import { print, renderTable, say, short } from "./output.ts";
import { conditionText } from "./steps.ts";

export const IDENTITY_EXIT_CODES = `

Exit codes:
  0  changed, and every condition was observed to hold
  2  unknown partner or agent, or a configuration that is wrong; nothing was changed
  4  a guard refused, named in brackets, or the head is refused; nothing was changed
  5  changed, and something was not observed yet: do what it names, and run the same command again`;

/** Opens the deployment, changes one identity, prints how it ended, and keeps the evidence. */
export async function changeIdentity(
  options: { readonly config: string; readonly json: boolean | undefined },
  change: (
    context: Federation & { readonly onWait: () => void },
    parts: ReturnType<typeof agentParts>,
    config: FederationConfig,
  ) => Promise<IdentityResult>,
): Promise<ExitCode> {
  const { config, federation } = await openForCommand(options.config);
  const context = { ...federation, onWait: () => say("another change is being committed; waiting") };
  const result = await change(context, agentParts(config, systemClock), config);
  const evidence = keepEvidence(federation, result);
  for (const note of result.notes) say(`NOTE: ${note}`);
  print(options, { ...result, evidence }, () => textOf(result, evidence));
  return result.complete ? ExitCode.ok : ExitCode.incomplete;
}

const DONE = {
  rotate: "rotated",
  pin: "pinned",
  withdraw: "withdrawn",
  add: "added",
  remove: "removed",
} as const;

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
