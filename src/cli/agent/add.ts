// drawbridge agent add: adds an agent of ours to our bridge, whose card is verified first.
import { addAgent } from "../../federation/agents/pin.ts";
import { changeIdentity, readPublicIdentity } from "../lib/agent-identity.ts";
import { defineCommand, OPTION, required } from "../lib/command.ts";

export const addCommand = defineCommand({
  arguments: [["<agent>", "its name here: a to z, 0 to 9, '.', '_' and '-'; part of its ghost's user ID"]],
  options: [
    required("--card-url <url>", "where its signed card is served"),
    required("--jwks <file>", "the public key that signs its card: a JWK or a JWK set"),
    ["--key-id <id>", "which key of the set; or the kid of a JWK that has none"],
    ["--allowed-origin <origin>", "where its interfaces are, if not at its card's origin, or a private host"],
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
    return changeIdentity(options, addAgent, { agent, cardUrl, identity, allowedOrigins });
  },
});
