// drawbridge readmission open: a removed partner is to come back, as a new one.
import { resolve } from "node:path";
import process from "node:process";
import type { Command } from "commander";
import { FreshIdentities } from "../../federation/readmission/new-identities.ts";
import { openReadmission } from "../../federation/readmission/open.ts";
import { loadYaml } from "../../runtime/load-yaml.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
import { CONFIG_OPTION } from "../lib/federation-options.ts";
import { renderJson } from "../lib/output.ts";
import { nextCommand, openWalk, textOf } from "../lib/readmission-options.ts";

interface Options {
  readonly config: string;
  readonly approval: string;
  readonly newIdentities: string;
  readonly json?: boolean;
}

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<partner>", "server name, or name of the registry file")
      .requiredOption("--approval <reference>", "where the contractual approval is filed")
      .requiredOption("--new-identities <file>", "what the partner brings anew: its client, its keys")
      .option(...CONFIG_OPTION)
      .option("--json", "print JSON")
      .addHelpText(
        "after",
        `
The partnership is new: everything that the partner's file pinned goes on its retired list and is refused from now
on, what FRESH says comes in its place, and one record with the gate is committed. No plane is opened. FRESH:
  version: 1
  azp: org-b-bridge-2
  clientSecret: {file: secrets/org-b-bridge-2}
  serverKeys: ["ed25519:a_9z8Y"]
  agents: {org-b-docs-qa: {cardIdentity: {keyId: org-b-card-2, jwk: {kty: EC, crv: P-256, x: …, y: …}}}}

Exit codes:
  0  opened, or open already with this gate and these identities
  2  unknown partner, or a file that is wrong or not the one it was opened with; nothing was changed
  4  a guard refused, named in brackets (not_removed, removal_open, retired_key, retired_client, fresh_secret,
     unknown_agent), or the head is refused; nothing was changed`,
      )
      .action(async (partner: string, options: Options) => {
        const fresh = loadYaml(FreshIdentities, resolve(options.newIdentities));
        const context = await openWalk(options);
        const gate = options.approval;
        const { readmission, isNew } = await openReadmission(context, {
          partner,
          gate,
          fresh,
        });
        const next = nextCommand(readmission, partner, options.config);
        if (options.json === true)
          process.stdout.write(renderJson({ isNew, readmission, next: next ?? null }));
        else {
          process.stdout.write(`${isNew ? "" : "It was open already.\n"}${textOf(readmission)}`);
          if (next !== undefined) process.stdout.write(`next: ${next}\n`);
        }
        process.exitCode = ExitCode.ok;
      });
  },
};
