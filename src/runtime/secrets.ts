// Secrets come from files or the environment, never from configuration itself and never into a log.
// Invariants: a file that others may read is refused. What the registry refers to, other people edit: its references
// reach the files of one folder and variables of one prefix, and no link leads out of that folder.
import { closeSync, constants, fstatSync, openSync, readFileSync, readlinkSync, realpathSync } from "node:fs";
import { resolve, sep } from "node:path";
import * as z from "zod";
import { DrawbridgeError } from "../domain/errors.ts";

/** Where a secret of a program's own configuration is found: a path relative to that file, or a variable. */
export const SecretReference = z.union([
  z.strictObject({ file: z.string().min(1) }),
  z.strictObject({ env: z.string().regex(/^[A-Z_][A-Z0-9_]*$/) }),
]);
export type SecretReference = z.output<typeof SecretReference>;

/** The folder of every secret file that the registry may refer to. A program's own secrets are kept elsewhere. */
const CLIENT_SECRETS = "client-secrets";

const ALLOWED =
  "must be a file below client-secrets/ ({file: client-secrets/NAME}) or a variable that begins with DRAWBRIDGE_SECRET_ ({env: DRAWBRIDGE_SECRET_NAME})";

/** Where a secret of the registry, or of a file rendered from it, is found on the machine that uses it. */
export const RegistrySecretReference = z.union([
  z.strictObject({
    file: z
      .string()
      .regex(/^client-secrets(?:\/[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}){1,4}$/, { error: ALLOWED }),
  }),
  z.strictObject({ env: z.string().regex(/^DRAWBRIDGE_SECRET_[A-Z0-9_]{1,100}$/, { error: ALLOWED }) }),
]);
export type RegistrySecretReference = z.output<typeof RegistrySecretReference>;

/** A secret, without surrounding white space. @throws DrawbridgeError `secret_unavailable`, also when others may read it */
export function readSecret(reference: SecretReference, baseDirectory: string): string {
  return "env" in reference
    ? fromEnvironment(reference.env)
    : fromFile(resolve(baseDirectory, reference.file), undefined);
}

/** @param baseDirectory the folder that client-secrets/ is in. @throws DrawbridgeError `secret_unavailable` */
export function readRegistrySecret(reference: RegistrySecretReference, baseDirectory: string): string {
  if (!RegistrySecretReference.safeParse(reference).success) {
    throw unavailable("a reference of the registry names no secret that it may use", CONFINED);
  }
  if ("env" in reference) return fromEnvironment(reference.env);
  return fromFile(resolve(baseDirectory, reference.file), resolve(baseDirectory, CLIENT_SECRETS));
}

const CONFINED = "Put the secret into the folder client-secrets, as a file or by a link that stays in it.";

function fromEnvironment(name: string): string {
  const value = process.env[name]?.trim();
  if (value) return value;
  const hint = `Set ${name}, or name a file in the configuration instead.`;
  throw unavailable(`the environment variable ${name} is not set`, hint);
}

/** @param folder where the file has to be, links resolved; anywhere when it is undefined */
function fromFile(path: string, folder: string | undefined): string {
  let file: number;
  try {
    // Opening a pipe without a writer would wait.
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (cause) {
    const hint = "Create the file, readable by this user alone (mode 0600).";
    throw unavailable(`cannot read the secret file ${path}`, hint, cause);
  }
  try {
    const stats = fstatSync(file);
    if (!stats.isFile()) throw unavailable(`the secret file ${path} is no regular file`, CONFINED);
    // The open file says where it is, whatever a link on the path is changed to meanwhile.
    if (folder !== undefined && !isBelow(readlinkSync(`/proc/self/fd/${file}`), realpathSync(folder))) {
      throw unavailable(`the secret file ${path} is a link that leads out of ${folder}`, CONFINED);
    }
    const mode = stats.mode & 0o777;
    if ((mode & 0o077) !== 0) {
      const hint = "chmod 600 the file; replace the secret if others may have read it.";
      throw unavailable(`others may read the secret file ${path} (mode 0${mode.toString(8)})`, hint);
    }
    const value = readFileSync(file, "utf8").trim();
    if (value !== "") return value;
  } finally {
    closeSync(file);
  }
  throw unavailable(`the secret file ${path} is empty`, "Write the secret into it.");
}

function isBelow(path: string, folder: string): boolean {
  return path.startsWith(folder.endsWith(sep) ? folder : `${folder}${sep}`);
}

function unavailable(message: string, hint: string, cause?: unknown): DrawbridgeError {
  return new DrawbridgeError("secret_unavailable", message, { hint, cause });
}
