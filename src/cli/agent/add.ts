// drawbridge agent add: an agent that no partner publishes gets a ghost of this organisation's bridge.
import { addAgent } from "../../federation/agents/add.ts";
import { readPublicIdentity } from "../../federation/agents/key-files.ts";
import { changeIdentity, IDENTITY_EXIT_CODES } from "../lib/agent-identity.ts";
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";

export const command = defineCommand({
  arguments: [["<agent>", "its name here: a to z, 0 to 9, '.', '_' and '-'; part of its ghost's user ID"]],
  options: [
    ["--card-url <url>", "where its signed card is served", { required: true }],
    ["--jwks <file>", "the public key that signs its card: a JWK or a JWK set", { required: true }],
    ["--key-id <id>", "which key of the set; or the kid of a JWK that has none"],
    ["--display-name <name>", "its name in rooms; the card's own when left out"],
    [
      "--allowed-origin <origin>",
      "where its interfaces are, when that is not the card's origin, or is a private host name",
    ],
    CONFIG.federation,
    JSON_OPTION,
  ],
  help: `
The card is fetched and verified by the key. Then one commit writes the agent into registry/organisation.yaml, and the
card plane is brought into force: the bridge verifies the agent and registers its ghost, which people invite and ask.
All users of this organisation and of every admitted partner may ask it; edit allowedServers and allowedSenders of the
entry to admit fewer, and credentials where it demands a token. Guards: agent_present, unverified_card, retired_key,
private_jwk.${IDENTITY_EXIT_CODES}
  3  there is no card at the address; nothing was changed`,
  run([agent], options) {
    const identity = readPublicIdentity(options.jwks, options.keyId);
    const { cardUrl, displayName, allowedOrigin } = options;
    const allowedOrigins = allowedOrigin === undefined ? [] : [allowedOrigin];
    return changeIdentity(options, (context, parts) =>
      addAgent(context, parts, { agent, cardUrl, identity, displayName, allowedOrigins }),
    );
  },
});
