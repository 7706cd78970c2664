// drawbridge agent rotate: the publisher's side of a rotation.
import { resolve } from "node:path";
import process from "node:process";
import type { Command } from "commander";
import { systemClock } from "../../domain/clock.ts";
import { readOldCard } from "../../federation/agents/key-files.ts";
import { agentParts, publishedCardUrl } from "../../federation/agents/proof.ts";
import { rotateAgent } from "../../federation/agents/rotate.ts";
import { IDENTITY_EXIT_CODES, report } from "../lib/agent-report.ts";
import type { CommandModule } from "../lib/command.ts";
import { CONFIG_OPTION, openForCommand, say } from "../lib/federation-options.ts";

interface Options {
  readonly config: string;
  readonly key: string;
  readonly card: string;
  readonly keyId: string;
  readonly newKey?: string;
  readonly lost?: boolean;
  readonly oldCard?: string;
  readonly cardUrl?: string;
  readonly json?: boolean;
}

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<agent>", "its name under agents in registry/organisation.yaml")
      .requiredOption("--key <file>", "where its private key lies; the new one comes into its place")
      .requiredOption("--card <file>", "its card; signed anew, by the new key alone")
      .requiredOption("--key-id <id>", "the kid of the new key")
      .option("--new-key <file>", "a private key made elsewhere; one is made when left out")
      .option("--lost", "the old private key is lost for good")
      .option("--old-card <file>", "a card that the lost key has signed, when --card is no such card")
      .option("--card-url <url>", "where the card is served; by default the gateway's public address of it")
      .option(...CONFIG_OPTION)
      .option("--json", "print JSON")
      .addHelpText(
        "after",
        `
The old private key is removed, the card is signed by the new one, and the registry changes in one commit: the
public key, our own pins of it, the retired list. Restart the agent when it keeps its card in memory, and give the
partners the new public key by another way than the card. It is proved: a card by the old key fails against the
new pin, also in the new key's name, and the card that is served verifies. Guards: missing_key, other_key,
nothing_to_rotate, pinned_jwk, staged_key, retired_key, in_version_control.${IDENTITY_EXIT_CODES}`,
      )
      .action(async (agent: string, options: Options) => {
        const oldCard = options.oldCard === undefined ? undefined : readOldCard(options.oldCard);
        const { config, federation } = await openForCommand(options.config);
        const context = { ...federation, onWait: () => say("another change is being committed; waiting") };
        const result = await rotateAgent(context, agentParts(config, systemClock), {
          agent,
          keyFile: resolve(options.key),
          cardFile: resolve(options.card),
          keyId: options.keyId,
          newKeyFile: options.newKey === undefined ? undefined : resolve(options.newKey),
          isLost: options.lost === true,
          oldCard,
          cardUrl: (registry) => options.cardUrl ?? publishedCardUrl(config, registry, agent),
        });
        process.exitCode = report(federation, result, options.json === true);
      });
  },
};
