// drawbridge issuer keygen: makes the issuer's signing keys.
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import process from "node:process";
import type { Command } from "commander";
import { DrawbridgeError } from "../../domain/errors.ts";
import { generateSigningKeys } from "../../issuer/signing-keys.ts";
import type { CommandModule } from "../lib/command.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .requiredOption("-o, --output <file>", "where to write them; an existing file is kept and refused")
      .action(async (options: { output: string }) => {
        const file = resolve(options.output);
        const keys = await generateSigningKeys();
        mkdirSync(dirname(file), { recursive: true });
        try {
          writeFileSync(file, `${JSON.stringify(keys, null, 2)}\n`, { mode: 0o600, flag: "wx" });
        } catch (cause) {
          throw new DrawbridgeError("usage", `cannot write ${file}`, {
            hint: "Name a file that does not exist yet; a key in use is never overwritten.",
            cause,
          });
        }
        process.stdout.write(`${file}\n`);
      });
  },
};
