// drawbridge agent rotate: gives an agent of ours a new signing key, and proves that the old one fails.
import { resolve } from "node:path";
import { publishedCardUrl } from "../../federation/agents/commit-and-prove.ts";
import { rotateAgent } from "../../federation/agents/rotate.ts";
import { changeIdentity, OLD_CARD } from "../lib/agent-identity.ts";
import { defineCommand, OPTION, required } from "../lib/command.ts";

export const rotateCommand = defineCommand({
  arguments: [["<agent>", "its name under agents in registry/organisation.yaml"]],
  options: [
    required("--key <file>", "where its private key lies; the new one comes into its place"),
    required("--card <file>", "its card; signed anew, by the new key alone"),
    required("--key-id <id>", "the kid of the new key"),
    ["--new-key <file>", "a private key made elsewhere; one is made when left out", { parse: resolve }],
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
    return changeIdentity(options, rotateAgent, {
      ...{ agent, keyId, newKeyFile, oldCard, isLost: options.lost === true },
      keyFile: resolve(options.key),
      cardFile: resolve(options.card),
      cardUrl: (registry, config) => options.cardUrl ?? publishedCardUrl(config, registry, agent),
    });
  },
});
