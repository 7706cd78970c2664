// Which message of which Megolm session a ciphertext is, read off its outside. The machine has decrypted it,
// so the signature and the code over these bytes were right; the same ciphertext always gives the same digest.
// Form: version byte 3, then protocol buffer fields; field 1 (varint) is the message index.
// https://gitlab.matrix.org/matrix-org/olm/-/blob/master/docs/megolm.md, "Message format"
import { canonicalize } from "../../domain/canonical-json.ts";
import { sha256 } from "../../domain/digest.ts";
import type { RoomId } from "../../domain/identifiers.ts";

const VERSION = 3;
const INDEX_TAG = 0x08;
// The index counts to 2^32; a varint of it has at most five bytes.
const VARINT_BYTES = 5;

/** The message index, or undefined when this is no Megolm message. */
export function megolmIndex(ciphertext: string): number | undefined {
  // Version, tag and varint fit into twelve characters of base64.
  const bytes = Buffer.from(ciphertext.slice(0, 12), "base64");
  if (bytes[0] !== VERSION || bytes[1] !== INDEX_TAG) return undefined;
  let index = 0;
  for (let at = 0; at < VARINT_BYTES; at++) {
    const byte = bytes[2 + at];
    if (byte === undefined) return undefined;
    index += (byte & 0x7f) * 2 ** (7 * at);
    if (byte < 0x80) return index < 2 ** 32 ? index : undefined;
  }
  return undefined;
}

/** SHA-256 over the canonical form of room, session and index. */
export function indexDigest(room: RoomId, session: string, index: number): Buffer {
  return sha256(canonicalize([room, session, index]));
}
