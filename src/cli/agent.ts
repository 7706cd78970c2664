// drawbridge agent: adds, removes, rotates, pins and withdraws one agent of the registry.
import { resolve } from "node:path";
import { systemClock } from "../domain/clock.ts";
import { agentParts, keepEvidence, publishedCardUrl } from "../federation/agents/commit-and-prove.ts";
import { readOldCard, readPublicIdentity } from "../federation/agents/key-files.ts";
import { addAgent, pinAgent } from "../federation/agents/pin.ts";
import { rotateAgent } from "../federation/agents/rotate.ts";
import { withdrawAgent } from "../federation/agents/withdraw.ts";
import type { Federation } from "../federation/reconcile/context.ts";
import { type DeploymentOptions, defineCommand, OPTION, required } from "./lib/command.ts";
import { ExitCode } from "./lib/exit-codes.ts";
import { conditionText, openForCommand } from "./lib/federation.ts";
import { print, renderTable, short } from "./lib/output.ts";

type IdentityResult = Parameters<typeof keepEvidence>[1];

async function changeIdentity(
  options: DeploymentOptions,
  change: (federation: Federation, parts: ReturnType<typeof agentParts>) => Promise<IdentityResult>,
): Promise<ExitCode> {
  const federation = await openForCommand(options.config);
  const result = await change(federation, agentParts(federation.config, systemClock));
  const evidence = keepEvidence(federation, result);
  print(options, { ...result, evidence }, () => textOf(result, evidence));
  return result.complete ? ExitCode.ok : ExitCode.incomplete;
}

const OLD_CARD = { parse: (file: string) => readOldCard(file) } as const;
const PATH = { parse: (file: string) => resolve(file) } as const;
const PARTNER_OR_US = [
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

export const addCommand = defineCommand({
  arguments: [["<agent>", "its name here: a to z, 0 to 9, '.', '_' and '-'; part of its ghost's user ID"]],
  options: [
    required("--card-url <url>", "where its signed card is served"),
    required("--jwks <file>", "the public key that signs its card: a JWK or a JWK set"),
    ["--key-id <id>", "which key of the set; or the kid of a JWK that has none"],
    [
      "--allowed-origin <origin>",
      "where its interfaces are, when that is not the card's origin, or is a private host name",
    ],
    OPTION.federation,
    OPTION.json,
  ],
  help: `
The card is fetched and verified by the key. Then one commit writes the agent into registry/organisation.yaml, and the
card plane is brought into force: the bridge verifies the agent and registers its ghost, which people invite and ask.
All users of this organisation and of every admitted partner may ask it; edit allowedServers and allowedSenders of the
entry to admit fewer, displayName for another name than its card's, and credentials where it demands a token. Guards: agent_present, unverified_card, retired_key,
private_jwk.`,
  run([agent], options) {
    const identity = readPublicIdentity(options.jwks, options.keyId);
    const { cardUrl, allowedOrigin } = options;
    const allowedOrigins = allowedOrigin === undefined ? [] : [allowedOrigin];
    return changeIdentity(options, (context, parts) =>
      addAgent(context, parts, { agent, cardUrl, identity, allowedOrigins }),
    );
  },
});

export const removeCommand = defineCommand({
  arguments: [["<agent>", "its name under consumes in registry/organisation.yaml"]],
  options: [OPTION.federation, OPTION.json],
  help: `
Its entry goes, and the bridge carries it no more; its ghost stays in its rooms and answers that the agent is no longer
offered. Its key is not retired: it may be added again. For a key that must never be trusted again: agent withdraw.`,
  run: ([agent], options) =>
    changeIdentity(options, (context, parts) => withdrawAgent(context, parts, { agent, keepsKey: true })),
});

export const rotateCommand = defineCommand({
  arguments: [["<agent>", "its name under agents in registry/organisation.yaml"]],
  options: [
    required("--key <file>", "where its private key lies; the new one comes into its place"),
    required("--card <file>", "its card; signed anew, by the new key alone"),
    required("--key-id <id>", "the kid of the new key"),
    ["--new-key <file>", "a private key made elsewhere; one is made when left out", PATH],
    ["--lost", "the old private key is lost for good"],
    ["--old-card <file>", "a card that the lost key has signed, when --card is no such card", OLD_CARD],
    ["--card-url <url>", "where the card is served; by default the gateway's public address of it"],
    OPTION.federation,
    OPTION.json,
  ],
  help: `
The old private key is removed, the card is signed by the new one, and the registry changes in one commit: the
public key, our own pins of it, the retired list. Restart the agent when it keeps its card in memory, and give the
partners the new public key by another way than the card. It is proved: a card by the old key fails against the
new pin, also in the new key's name, and the card that is served verifies. Guards: missing_key, other_key,
nothing_to_rotate, pinned_jwk, staged_key, retired_key, in_version_control.`,
  run([agent], options) {
    const { keyId, newKey: newKeyFile, oldCard } = options;
    return changeIdentity(options, (context, parts) =>
      rotateAgent(context, parts, {
        ...{ agent, keyId, newKeyFile, oldCard, isLost: options.lost === true },
        keyFile: resolve(options.key),
        cardFile: resolve(options.card),
        cardUrl: (registry) => options.cardUrl ?? publishedCardUrl(context.config, registry, agent),
      }),
    );
  },
});

export const pinCommand = defineCommand({
  arguments: [PARTNER_OR_US, ["<agent>", "its name in the registry"]],
  options: [
    required("--jwk <file>", "the new public key: a JWK or a JWK set, received by another way than the card"),
    ["--key-id <id>", "which key of the set; or the kid of a JWK that has none"],
    ["--replaces <id>", "the key ID that is pinned now, to change it"],
    [
      "--old-card <file>",
      "a card that the old key has signed, where this deployment has kept none",
      OLD_CARD,
    ],
    OPTION.federation,
    OPTION.json,
  ],
  help: `
The registry pins the new key, and the old one goes on the retired list, in one commit. Then the card plane is
brought into force, and it is proved: the card that is served verifies by the new pin and not by the old one, and
the bridge has verified the target. Until then the target is quarantined: a question gets that answer, and
later questions are answered. The old identity is shown to fail by the last card of the old key: the one that is
still served, or that the last pin has kept, or --old-card. Guards: pinned_jwk (a pin is replaced only by name),
retired_key, private_jwk.`,
  run([partner, agent], options) {
    const identity = readPublicIdentity(options.jwk, options.keyId);
    const { replaces, oldCard } = options;
    return changeIdentity(options, (context, parts) =>
      pinAgent(context, parts, { partner, agent, identity, replaces, oldCard }),
    );
  },
});

export const withdrawCommand = defineCommand({
  arguments: [
    PARTNER_OR_US,
    ["<agent>", "its agent that our bridge carries, or an agent of ours that it may invoke"],
  ],
  options: [OPTION.federation, OPTION.json],
  help: `
An agent that our bridge carries: its entry goes, its pin is retired, and the bridge quarantines it at once.
An agent of ours: the partner may invoke it no more (its authorization, and the card where nobody else consumes
it). Everything else of the partner, and planes 1 to 3, stay as they are.`,
  run: ([partner, agent], options) =>
    changeIdentity(options, (context, parts) => withdrawAgent(context, parts, { partner, agent })),
});
