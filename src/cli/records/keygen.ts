// drawbridge records keygen: makes the key pair that an organisation signs offboarding records with.
import process from "node:process";
import type { Command } from "commander";
import { createKeyPair } from "../../records/sign/key-pair.ts";
import type { CommandModule } from "../lib/command.ts";
import { renderJson } from "../lib/output.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .requiredOption("-o, --out <directory>", "where to write records-key.pem and records-key.pub.pem")
      .option("--json", "print one JSON object instead")
      .addHelpText(
        "after",
        `
The private key is ECDSA P-256 in PKCS #8 PEM, readable by this user alone. Give the public key to the
partner and to auditors, and read the key ID to them by another way. A key is never overwritten.`,
      )
      .action(({ out, json }: { out: string; json?: true }) => {
        const { keyId, privateKeyFile, publicKeyFile } = createKeyPair(out);
        process.stdout.write(
          json
            ? renderJson({ keyId, privateKeyFile, publicKeyFile })
            : `key ID       ${keyId}\nprivate key  ${privateKeyFile}\npublic key   ${publicKeyFile}\n`,
        );
      });
  },
};
