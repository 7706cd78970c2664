// SHA-256 digests, written as `sha256:` and lower-case hexadecimal digits. Invariant: no other file writes or takes off `sha256:`.
import { type Hash, hash } from "node:crypto";

const TAG = "sha256:";

export const sha256 = (data: string | Uint8Array): Buffer => hash("sha256", data, "buffer");

export const sha256Tagged = (data: string | Uint8Array): string => `${TAG}${hash("sha256", data, "hex")}`;

/** The digest of what was given to a hash piece by piece. */
export const digestOf = (pieces: Hash): string => `${TAG}${pieces.digest("hex")}`;

export const isDigest = (text: string): boolean => text.startsWith(TAG);

export const hexOfDigest = (digest: string): string => digest.slice(TAG.length);
