// SHA-256 digests: made, written as `sha256:` and lower-case hexadecimal digits.
import { hash } from "node:crypto";

const TAG = "sha256:";

export const sha256 = (data: string | Uint8Array): Buffer => hash("sha256", data, "buffer");

export function sha256Tagged(data: string | Uint8Array): string {
  return `${TAG}${hash("sha256", data, "hex")}`;
}

export const hexOfDigest = (digest: string): string => digest.slice(TAG.length);
