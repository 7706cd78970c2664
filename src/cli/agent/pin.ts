// drawbridge agent pin: the consumer's side of a rotation.
import process from "node:process";
import type { Command } from "commander";
import { systemClock } from "../../domain/clock.ts";
import { readOldCard, readPublicIdentity } from "../../federation/agents/key-files.ts";
import { pinAgent } from "../../federation/agents/pin.ts";
import { agentParts } from "../../federation/agents/proof.ts";
import { IDENTITY_EXIT_CODES, report } from "../lib/agent-report.ts";
import type { CommandModule } from "../lib/command.ts";
import { CONFIG_OPTION, openForCommand, say } from "../lib/federation-options.ts";

interface Options {
  readonly config: string;
  readonly jwk: string;
  readonly keyId?: string;
  readonly replaces?: string;
  readonly oldCard?: string;
  readonly json?: boolean;
}

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<partner>", "server name, or name of the registry file; our own server for an agent of ours")
      .argument("<agent>", "its name in the registry")
      .requiredOption(
        "--jwk <file>",
        "the new public key: a JWK or a JWK set, received by another way than the card",
      )
      .option("--key-id <id>", "which key of the set; or the kid of a JWK that has none")
      .option("--replaces <id>", "the key ID that is pinned now, to change it")
      .option("--old-card <file>", "a card that the old key has signed, where this deployment has kept none")
      .option(...CONFIG_OPTION)
      .option("--json", "print JSON")
      .addHelpText(
        "after",
        `
The registry pins the new key, and the old one goes on the retired list, in one commit. Then the card plane is
brought into force, and it is proved: the card that is served verifies by the new pin and not by the old one, and
the bridge has verified the target. Until then the target is quarantined: whoever asks is told so, and what is
asked after it is answered. The old identity is seen failing by the last card of the old key: the one that is
still served, or that the last pin has kept, or --old-card. Guards: pinned_jwk (a pin is replaced only by name), retired_key, private_jwk.${IDENTITY_EXIT_CODES}`,
      )
      .action(async (partner: string, agent: string, options: Options) => {
        const identity = readPublicIdentity(options.jwk, options.keyId);
        const oldCard = options.oldCard === undefined ? undefined : readOldCard(options.oldCard);
        const { config, federation } = await openForCommand(options.config);
        const context = { ...federation, onWait: () => say("another change is being committed; waiting") };
        const { replaces } = options;
        const parts = agentParts(config, systemClock);
        const result = await pinAgent(context, parts, { partner, agent, identity, replaces, oldCard });
        process.exitCode = report(federation, result, options.json === true);
      });
  },
};
