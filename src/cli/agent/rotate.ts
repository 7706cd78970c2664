// drawbridge agent rotate: the publisher's side of a rotation.
import { resolve } from "node:path";
import { readOldCard } from "../../federation/agents/key-files.ts";
import { publishedCardUrl } from "../../federation/agents/proof.ts";
import { rotateAgent } from "../../federation/agents/rotate.ts";
import { changeIdentity, IDENTITY_EXIT_CODES } from "../lib/agent-identity.ts";
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";

export const command = defineCommand({
  arguments: [["<agent>", "its name under agents in registry/organisation.yaml"]],
  options: [
    ["--key <file>", "where its private key lies; the new one comes into its place", { required: true }],
    ["--card <file>", "its card; signed anew, by the new key alone", { required: true }],
    ["--key-id <id>", "the kid of the new key", { required: true }],
    ["--new-key <file>", "a private key made elsewhere; one is made when left out"],
    ["--lost", "the old private key is lost for good"],
    ["--old-card <file>", "a card that the lost key has signed, when --card is no such card"],
    ["--card-url <url>", "where the card is served; by default the gateway's public address of it"],
    CONFIG.federation,
    JSON_OPTION,
  ],
  help: `
The old private key is removed, the card is signed by the new one, and the registry changes in one commit: the
public key, our own pins of it, the retired list. Restart the agent when it keeps its card in memory, and give the
partners the new public key by another way than the card. It is proved: a card by the old key fails against the
new pin, also in the new key's name, and the card that is served verifies. Guards: missing_key, other_key,
nothing_to_rotate, pinned_jwk, staged_key, retired_key, in_version_control.${IDENTITY_EXIT_CODES}`,
  run([agent], options) {
    const oldCard = options.oldCard === undefined ? undefined : readOldCard(options.oldCard);
    return changeIdentity(options, (context, parts, config) =>
      rotateAgent(context, parts, {
        agent,
        keyFile: resolve(options.key),
        cardFile: resolve(options.card),
        keyId: options.keyId,
        newKeyFile: options.newKey === undefined ? undefined : resolve(options.newKey),
        isLost: options.lost === true,
        oldCard,
        cardUrl: (registry) => options.cardUrl ?? publishedCardUrl(config, registry, agent),
      }),
    );
  },
});
