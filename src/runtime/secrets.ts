// Secrets come from files or the environment, never from configuration itself and never into a log.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { z } from "zod";
import { DrawbridgeError } from "../domain/errors.ts";

/** Where a secret is found: `{ file: path }`, relative to the configuration file, or `{ env: NAME }`. */
export const SecretReference = z.union([
  z.strictObject({ file: z.string().min(1) }),
  z.strictObject({ env: z.string().regex(/^[A-Z_][A-Z0-9_]*$/) }),
]);
export type SecretReference = z.output<typeof SecretReference>;

/**
 * Reads a secret; surrounding white space is dropped.
 * @throws DrawbridgeError `secret_unavailable` when it is missing or empty.
 */
export function readSecret(reference: SecretReference, baseDirectory: string): string {
  if ("env" in reference) {
    const value = process.env[reference.env]?.trim();
    if (value) return value;
    throw new DrawbridgeError("secret_unavailable", `the environment variable ${reference.env} is not set`, {
      hint: `Set ${reference.env}, or name a file in the configuration instead.`,
    });
  }
  const path = resolve(baseDirectory, reference.file);
  try {
    const value = readFileSync(path, "utf8").trim();
    if (value !== "") return value;
  } catch (cause) {
    throw new DrawbridgeError("secret_unavailable", `cannot read the secret file ${path}`, {
      hint: "Create the file, readable by this user alone (mode 0600).",
      cause,
    });
  }
  throw new DrawbridgeError("secret_unavailable", `the secret file ${path} is empty`, {
    hint: "Write the secret into it.",
  });
}
