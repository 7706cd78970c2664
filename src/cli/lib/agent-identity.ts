// What the commands on one agent share: they read the public keys and cards that an operator names, change its identity in
// the registry, and print what was shown. Invariant: public keys are read strictly, and refused when anything private is in
// them.
import { systemClock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { membersOf } from "../../domain/json.ts";
import { strictJsonIn } from "../../domain/strict-json.ts";
import {
  type AgentParts,
  agentParts,
  type IdentityResult,
} from "../../federation/agents/commit-and-prove.ts";
import { refuse } from "../../federation/agents/identity-rules.ts";
import type { Federation } from "../../federation/reconcile/context.ts";
import type { PinnedIdentity } from "../../federation/registry/retired-identities.ts";
import { PublicEs256Jwk } from "../../rendered-files/agents-file.ts";
import { readInput } from "../../runtime/read-input.ts";
import type { DeploymentOptions } from "./command.ts";
import { print, renderTable, short } from "./command.ts";
import { conditionText, openForCommand } from "./federation.ts";

export async function changeIdentity<Request>(
  options: DeploymentOptions,
  change: (federation: Federation, parts: AgentParts, request: Request) => Promise<IdentityResult>,
  request: Request,
) {
  const federation = await openForCommand(options.config);
  const result = await change(federation, agentParts(federation.config, systemClock), request);
  print(options, result, () => textOf(result));
  return result.complete ? "ok" : "incomplete";
}

const PUBLIC_FILE_BYTES_MAX = 1024 * 1024;

/** An operator's public key: a JWK, or one of a JWK set. @param keyId chooses among several, and names a key without `kid` */
export function readPublicIdentity(file: string, keyId: string | undefined): PinnedIdentity {
  const hint = "Name the file with the agent operator's public JWK, or JWK set.";
  const bytes = readInput(file, hint);
  const value = strictJsonIn(bytes, PUBLIC_FILE_BYTES_MAX);
  if (value === undefined) {
    throw new DrawbridgeError("config_unreadable", `cannot read ${file}: not strict JSON`, { hint });
  }
  const set = membersOf(value)["keys"];
  const candidates: unknown[] = Array.isArray(set) ? set : [value];
  if (candidates.some((one) => Object.hasOwn(membersOf(one), "d"))) {
    throw refuse("private_jwk", `${file} holds a private key`);
  }
  const keys = candidates.flatMap((one) => {
    // `key_ops` says nothing that is kept.
    const { key_ops: _operations, ...kept } = membersOf(one);
    return PublicEs256Jwk.safeParse(kept).data ?? [];
  });
  const meant = ({ kid }: (typeof keys)[number]) => keyId === undefined || kid === undefined || kid === keyId;
  const [key, second] = keys.filter(meant);
  const id = key?.kid ?? keyId;
  if (key === undefined || second !== undefined || id === undefined) {
    const what = key === undefined ? "has no such ES256 key" : second ? "has several keys" : "names no kid";
    throw new DrawbridgeError("config_invalid", `${file} ${what}`, {
      hint: "Say which one is meant with --key-id; it must be an EC P-256 public JWK.",
    });
  }
  return { keyId: id, jwk: { x: key.x, y: key.y } };
}

/** A card that the old key is said to have signed. @throws DrawbridgeError `config_unreadable`; `usage` without a signature */
function readOldCard(file: string): Buffer {
  const hint = "Name the file with a card that the old key has signed; nothing was changed.";
  const bytes = readInput(file, hint);
  const card = strictJsonIn(bytes, PUBLIC_FILE_BYTES_MAX);
  const { signatures } = membersOf(card);
  if (Array.isArray(signatures) && signatures.length > 0) return bytes;
  throw new DrawbridgeError("usage", `${file} is no signed Agent Card; nothing was changed`, {
    hint: "Name the card as the old key has signed it, its signatures included.",
  });
}

export const OLD_CARD = { parse: readOldCard } as const;

export const PARTNER_OR_US = [
  "<partner>",
  "server name, or name of the registry file; our own server for an agent of ours",
] as const;

const DONE = { rotate: "rotated", pin: "pinned", withdraw: "withdrawn", add: "added", remove: "removed" };

function textOf(result: IdentityResult): string {
  const { act, agent, partner, committed, revision, keyId, oldKeyId, untouched, conditions, evidence } =
    result;
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
