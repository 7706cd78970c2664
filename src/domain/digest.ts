// SHA-256 in the forms the project uses.
import { createHash } from "node:crypto";

export function sha256(data: string | Uint8Array): Buffer {
  return createHash("sha256").update(data).digest();
}

/** Lower-case hexadecimal, prefixed as records and policies write it: `sha256:…`. */
export function sha256Tagged(data: string | Uint8Array): string {
  return `sha256:${sha256(data).toString("hex")}`;
}
