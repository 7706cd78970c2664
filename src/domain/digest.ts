// SHA-256 in the forms the project uses.
import { hash } from "node:crypto";
import { z } from "zod";

const TAG = "sha256:";

/** A SHA-256 as records and policies write it: `sha256:` and 64 lower-case hexadecimal digits. */
export const Sha256Tagged = z
  .string()
  .regex(/^sha256:[0-9a-f]{64}$/, { error: "must be sha256:<64 hex digits>" });

export function sha256(data: string | Uint8Array): Buffer {
  return hash("sha256", data, "buffer");
}

/** Lower-case hexadecimal, prefixed as records and policies write it: `sha256:…`. */
export function sha256Tagged(data: string | Uint8Array): string {
  return `${TAG}${hash("sha256", data, "hex")}`;
}

/** The hexadecimal digits of a tagged digest. */
export function hexOf(tagged: string): string {
  return tagged.slice(TAG.length);
}
