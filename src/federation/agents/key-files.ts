// An agent's private key and its card as they lie on this machine. Invariants: a private key is never shown, and never kept
// but in its own file, of mode 0600; public keys are read strictly, and refused when anything private is in them.
import { createPrivateKey, createPublicKey } from "node:crypto";
import { chmodSync } from "node:fs";
import { importSigningKey } from "../../cards/sign.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { membersOf } from "../../domain/json.ts";
import { strictJsonIn } from "../../domain/strict-json.ts";
import { PublicEs256Jwk } from "../../rendered-files/agents-file.ts";
import { readInput } from "../../runtime/read-input.ts";
import { PRIVATE, readIfPresent } from "../../runtime/write-file.ts";
import type { PinnedIdentity } from "../registry/retired-identities.ts";
import { refuse } from "./identity-rules.ts";

const PUBLIC_FILE_BYTES_MAX = 1024 * 1024;

export type PrivateKeyFile = NonNullable<Awaited<ReturnType<typeof readPrivateKey>>>;

/** Undefined when there is no such file. @throws DrawbridgeError `secret_unavailable` when it is no ES256 key */
export async function readPrivateKey(file: string) {
  const text = readIfPresent(file);
  if (text === undefined) return undefined;
  await importSigningKey(text);
  const isPem = text.trimStart().startsWith("-----BEGIN");
  const key = isPem ? createPrivateKey(text) : createPrivateKey({ key: JSON.parse(text), format: "jwk" });
  const { x = "", y = "" } = createPublicKey(key).export({ format: "jwk" });
  chmodSync(file, PRIVATE);
  return { text, x, y };
}

/** An operator's public key: a JWK, or one of a JWK set. @param keyId chooses among several, and names a key without `kid` */
export function readPublicIdentity(file: string, keyId: string | undefined): PinnedIdentity {
  const hint = "Name the file with the agent operator's public JWK, or JWK set.";
  const bytes = readInput(file, hint);
  const value = strictJsonIn(bytes, PUBLIC_FILE_BYTES_MAX);
  if (value === undefined) {
    throw new DrawbridgeError("config_unreadable", `cannot read ${file}: not strict JSON`, { hint });
  }
  const set = membersOf(value)["keys"];
  const candidates: unknown[] = Array.isArray(set) ? set : [value];
  if (candidates.some((one) => Object.hasOwn(membersOf(one), "d"))) {
    throw refuse("private_jwk", `${file} holds a private key`);
  }
  const keys = candidates.flatMap((one) => {
    // `key_ops` says nothing that is kept.
    const { key_ops: _operations, ...kept } = membersOf(one);
    return PublicEs256Jwk.safeParse(kept).data ?? [];
  });
  const meant = ({ kid }: (typeof keys)[number]) => keyId === undefined || kid === undefined || kid === keyId;
  const [key, second] = keys.filter(meant);
  const id = key?.kid ?? keyId;
  if (key === undefined || second !== undefined || id === undefined) {
    const what = key === undefined ? "has no such ES256 key" : second ? "has several keys" : "names no kid";
    throw new DrawbridgeError("config_invalid", `${file} ${what}`, {
      hint: "Say which one is meant with --key-id; it must be an EC P-256 public JWK.",
    });
  }
  return { keyId: id, jwk: { x: key.x, y: key.y } };
}

/** A card that the old key is said to have signed. @throws DrawbridgeError `config_unreadable`; `usage` without a signature */
export function readOldCard(file: string): Buffer {
  const hint = "Name the file with a card that the old key has signed; nothing was changed.";
  const bytes = readInput(file, hint);
  const card = strictJsonIn(bytes, PUBLIC_FILE_BYTES_MAX);
  const { signatures } = membersOf(card);
  if (Array.isArray(signatures) && signatures.length > 0) return bytes;
  throw new DrawbridgeError("usage", `${file} is no signed Agent Card; nothing was changed`, {
    hint: "Name the card as the old key has signed it, its signatures included.",
  });
}
