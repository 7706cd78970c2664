// drawbridge agent pin: pins a partner's agent, or our own, to its new key.
import { pinAgent } from "../../federation/agents/pin.ts";
import { changeIdentity, OLD_CARD, PARTNER_OR_US, readPublicIdentity } from "../lib/agent-identity.ts";
import { defineCommand, OPTION, required } from "../lib/command.ts";

export const pinCommand = defineCommand({
  arguments: [PARTNER_OR_US, ["<agent>", "its name in the registry"]],
  options: [
    required("--jwk <file>", "the new public key: a JWK or a JWK set, received by another way than the card"),
    ["--key-id <id>", "which key of the set; or the kid of a JWK that has none"],
    ["--replaces <id>", "the key ID that is pinned now, to change it"],
    ["--old-card <file>", "a card that the old key has signed, where none is kept here", OLD_CARD],
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
    return changeIdentity(options, pinAgent, { partner, agent, identity, replaces, oldCard });
  },
});
