// drawbridge issuer keygen: makes the issuer's signing keys.
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { DrawbridgeError } from "../../domain/errors.ts";
import { generateSigningKeys } from "../../issuer/signing-keys.ts";
import { defineCommand } from "../lib/command.ts";
import { printText, renderJson } from "../lib/output.ts";

export const command = defineCommand({
  options: [
    ["-o, --output <file>", "where to write them; an existing file is kept and refused", { required: true }],
  ],
  async run(_, options) {
    const file = resolve(options.output);
    const keys = await generateSigningKeys();
    mkdirSync(dirname(file), { recursive: true });
    try {
      writeFileSync(file, renderJson(keys), { mode: 0o600, flag: "wx" });
    } catch (cause) {
      throw new DrawbridgeError("usage", `cannot write ${file}`, {
        hint: "Name a file that does not exist yet; a key in use is never overwritten.",
        cause,
      });
    }
    printText(`${file}\n`);
  },
});
