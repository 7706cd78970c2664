// SHA-256 digests: made, written as `sha256:` and lower-case hexadecimal digits, and checked in that form.
import { hash } from "node:crypto";
import * as z from "zod";

const TAG = "sha256:";

export const Sha256Digest = z
  .string()
  .regex(/^sha256:[0-9a-f]{64}$/, { error: "must be sha256:<64 hex digits>" });

export function sha256(data: string | Uint8Array): Buffer {
  return hash("sha256", data, "buffer");
}

export function sha256Tagged(data: string | Uint8Array): string {
  return `${TAG}${hash("sha256", data, "hex")}`;
}

export function hexOfDigest(digest: string): string {
  return digest.slice(TAG.length);
}
