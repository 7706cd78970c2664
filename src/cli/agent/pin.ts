// drawbridge agent pin: the consumer's side of a rotation.
import { readOldCard, readPublicIdentity } from "../../federation/agents/key-files.ts";
import { pinAgent } from "../../federation/agents/pin.ts";
import { changeIdentity, IDENTITY_EXIT_CODES } from "../lib/agent-identity.ts";
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";

export const command = defineCommand({
  arguments: [
    ["<partner>", "server name, or name of the registry file; our own server for an agent of ours"],
    ["<agent>", "its name in the registry"],
  ],
  options: [
    [
      "--jwk <file>",
      "the new public key: a JWK or a JWK set, received by another way than the card",
      { required: true },
    ],
    ["--key-id <id>", "which key of the set; or the kid of a JWK that has none"],
    ["--replaces <id>", "the key ID that is pinned now, to change it"],
    ["--old-card <file>", "a card that the old key has signed, where this deployment has kept none"],
    CONFIG.federation,
    JSON_OPTION,
  ],
  help: `
The registry pins the new key, and the old one goes on the retired list, in one commit. Then the card plane is
brought into force, and it is proved: the card that is served verifies by the new pin and not by the old one, and
the bridge has verified the target. Until then the target is quarantined: a question gets that answer, and
later questions are answered. The old identity is shown to fail by the last card of the old key: the one that is
still served, or that the last pin has kept, or --old-card. Guards: pinned_jwk (a pin is replaced only by name),
retired_key, private_jwk.${IDENTITY_EXIT_CODES}`,
  run([partner, agent], options) {
    const identity = readPublicIdentity(options.jwk, options.keyId);
    const oldCard = options.oldCard === undefined ? undefined : readOldCard(options.oldCard);
    const { replaces } = options;
    return changeIdentity(options, (context, parts) =>
      pinAgent(context, parts, { partner, agent, identity, replaces, oldCard }),
    );
  },
});
