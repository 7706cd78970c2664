// SHA-256 in the forms the project uses.
import { hash } from "node:crypto";

export function sha256(data: string | Uint8Array): Buffer {
  return hash("sha256", data, "buffer");
}

/** Lower-case hexadecimal, prefixed as records and policies write it: `sha256:…`. */
export function sha256Tagged(data: string | Uint8Array): string {
  return `sha256:${hash("sha256", data, "hex")}`;
}
