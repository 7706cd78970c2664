// What a message says of the file that it brings (Matrix client-server API, "m.room.message msgtypes"). Pure.
// Invariants: nothing here throws, whatever the sender writes; a reference is complete and bounded, or `unreadable`; an
// encrypted message refers to an encrypted file alone, because its homeserver could exchange any other.
import * as z from "zod";
import { text } from "../../domain/identifier-fields.ts";
import { parseServerName } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import type { Attachment, AttachmentReference } from "../ledger/prompts.ts";
import { fileName } from "../matrix/files.ts";

const KINDS: ReadonlySet<unknown> = new Set(["m.file", "m.image", "m.audio", "m.video"]);

/** Base64 of 16 or 32 bytes, as clients write it: without padding, or with it. */
const EncryptedFile = z.object({
  v: z.literal("v2"),
  url: z.string(),
  key: z.object({ kty: z.literal("oct"), alg: z.literal("A256CTR"), k: text(/^[A-Za-z0-9_-]{43}=?$/) }),
  iv: text(/^[A-Za-z0-9+/]{22}(?:==)?$/),
  hashes: z.object({ sha256: text(/^[A-Za-z0-9+/]{43}=?$/) }),
});
const MediaType = z.string().max(127);
/** A server's name becomes a segment of the path of the download, where dots alone would lead to another endpoint. */
const MXC = /^mxc:\/\/(?!\.{1,2}\/)([^/?#]{1,255})\/([A-Za-z0-9_-]{1,255})$/;

function placeOf(url: unknown): Pick<AttachmentReference, "server" | "mediaId"> | undefined {
  const [, name, mediaId] = (typeof url === "string" && MXC.exec(url)) || [];
  const server = parseServerName(name);
  return server === undefined || mediaId === undefined ? undefined : { server, mediaId };
}

function referenceIn(content: UnknownObject, isEncrypted: boolean): Attachment {
  const { info, filename, body, url, file } = content;
  const mimetype = MediaType.safeParse((info as UnknownObject | null | undefined)?.["mimetype"]);
  const given = [filename, body].find((one) => typeof one === "string");
  const name = fileName(given ?? "");
  const described = { name, mediaType: mimetype.data ?? "" };
  if (file === undefined && !isEncrypted) {
    const place = placeOf(url);
    return place === undefined ? "unreadable" : { ...place, ...described };
  }
  const sealed = EncryptedFile.safeParse(file);
  const place = placeOf(sealed.data?.url);
  if (!sealed.success || place === undefined) return "unreadable";
  const { key, iv, hashes } = sealed.data;
  return { ...place, ...described, encryption: { key: key.k, iv, sha256: hashes.sha256 } };
}

/** The file of a message, and its caption, if its name is not its `body`. Undefined for other messages. */
export function readAttachment(content: UnknownObject, isEncrypted: boolean) {
  const { msgtype, filename, body } = content;
  if (!KINDS.has(msgtype)) return undefined;
  const hasCaption = typeof filename === "string" && typeof body === "string" && filename !== body;
  return { caption: hasCaption ? body : "", attachment: referenceIn(content, isEncrypted) };
}
