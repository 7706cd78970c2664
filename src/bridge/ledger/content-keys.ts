// Prompts and replies are sealed with a key that is not in the database, so that no file of PostgreSQL ever holds them in
// the clear, and what a cleared row leaves behind on disk is unreadable.
// Form: key ID (4 bytes) | nonce (12) | AES-256-GCM ciphertext | tag (16). The row's identity is authenticated with it.
import { createCipheriv, createDecipheriv, createSecretKey, type KeyObject } from "node:crypto";
import { systemRandom } from "../../domain/clock.ts";
import { sha256 } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";

const KEY_BYTES = 32;
const KEY_ID_BYTES = 4;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const HEADER_BYTES = KEY_ID_BYTES + NONCE_BYTES;
/** Drawn at once: a call for each nonce is a third of what sealing a short text costs. */
const NONCES = 128;

interface ContentKey {
  readonly id: Buffer;
  /** Imported once: a raw key would be imported anew for each value, at four times the cost. */
  readonly key: KeyObject;
}

export class ContentKeys {
  readonly #keys: readonly ContentKey[];
  #nonces: Buffer = Buffer.alloc(0);

  private constructor(keys: readonly ContentKey[]) {
    this.#keys = keys;
  }

  /** Reads base64 keys, one a line: the first seals; all open. @throws DrawbridgeError `secret_unavailable` */
  static parse(text: string): ContentKeys {
    const hint = "Write 32 random bytes in base64 on each line, for example from `openssl rand -base64 32`.";
    const unusable = (what: string) => new DrawbridgeError("secret_unavailable", what, { hint });
    const lines = text.split("\n").filter((line) => line.trim() !== "");
    const keys = lines.map((line, index) => {
      const key = Buffer.from(line, "base64");
      if (key.length === KEY_BYTES)
        return { id: sha256(key).subarray(0, KEY_ID_BYTES), key: createSecretKey(key) };
      throw unusable(`content key ${index + 1} does not have 32 bytes`);
    });
    if (keys.length === 0) throw unusable("there is no content key");
    return new ContentKeys(keys);
  }

  seal(text: string, identity: string): Buffer {
    const active = this.#keys[0] as ContentKey;
    if (this.#nonces.length === 0) this.#nonces = systemRandom.bytes(NONCES * NONCE_BYTES);
    const nonce = this.#nonces.subarray(0, NONCE_BYTES);
    this.#nonces = this.#nonces.subarray(NONCE_BYTES);
    const cipher = createCipheriv("aes-256-gcm", active.key, nonce);
    cipher.setAAD(Buffer.from(identity));
    const body = cipher.update(text, "utf8");
    return Buffer.concat([active.id, nonce, body, cipher.final(), cipher.getAuthTag()]);
  }

  /** Whether the key that sealed this is the one that seals now. */
  isNewest(sealed: Buffer): boolean {
    return this.#keys[0]?.id.equals(sealed.subarray(0, KEY_ID_BYTES)) === true;
  }

  /** Opens what `seal` made for the same identity; undefined when no key opens it. */
  openIfKnown(sealed: Buffer, identity: string): string | undefined {
    const id = sealed.subarray(0, KEY_ID_BYTES);
    const key = this.#keys.find((candidate) => candidate.id.equals(id))?.key;
    if (key === undefined || sealed.length < HEADER_BYTES + TAG_BYTES) return undefined;
    const decipher = createDecipheriv("aes-256-gcm", key, sealed.subarray(KEY_ID_BYTES, HEADER_BYTES));
    decipher.setAAD(Buffer.from(identity));
    decipher.setAuthTag(sealed.subarray(-TAG_BYTES));
    try {
      const body = decipher.update(sealed.subarray(HEADER_BYTES, -TAG_BYTES));
      return Buffer.concat([body, decipher.final()]).toString("utf8");
    } catch {
      // A wrong tag.
      return undefined;
    }
  }

  /** The same for what must open. @throws DrawbridgeError `secret_unavailable` when no key opens it */
  open(sealed: Buffer, identity: string): string {
    const opened = this.openIfKnown(sealed, identity);
    if (opened !== undefined) return opened;
    throw new DrawbridgeError("secret_unavailable", "stored content cannot be opened with the content keys", {
      hint: "Put back the key that sealed it, as a further line of the content keys.",
    });
  }
}
