// Files in the media repository: of an agent's answer, encrypted for encrypted rooms, and of a person's question.
// Invariants: a file is what its bytes say; nothing that a browser runs is served under its own type; its name is no path;
// in an encrypted room only members can read it (Matrix client-server API, "Sending encrypted attachments").
import { isUtf8 } from "node:buffer";
import { createCipheriv, createDecipheriv } from "node:crypto";
import type { Clock, Random } from "../../domain/clock.ts";
import { sha256 } from "../../domain/digest.ts";
import type { GhostMxid, RoomId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import type { AttachmentReference } from "../ledger/prompts.ts";
import type { Ghosts } from "./ghosts.ts";
import type { Homeserver } from "./homeserver.ts";
import type { GhostActor } from "./http.ts";
import { plainLine } from "./markdown.ts";
import { mapValue, type Outcome } from "./request-result.ts";
import { isRoomEncrypted } from "./send-once.ts";

export interface AnswerFile {
  readonly name: string;
  readonly mediaType: string;
  readonly content: Uint8Array;
}

export interface UploaderDependencies {
  readonly homeserver: Homeserver;
  readonly ghosts: Ghosts;
  readonly ledger: { isRoomEncrypted(room: RoomId): Promise<boolean> };
  readonly random: Random;
  readonly clock: Clock;
}

type Destination = { readonly roomId: RoomId; readonly ghost: GhostMxid };

const OCTETS = "application/octet-stream";

const SIGNATURES: readonly (readonly [mediaType: string, bytes: string, bytesAt8?: string])[] = [
  ["image/png", "\x89PNG\r\n\x1a\n"],
  ["image/jpeg", "\xff\xd8\xff"],
  ["image/gif", "GIF8"],
  ["image/webp", "RIFF", "WEBP"],
  ["application/pdf", "%PDF-"],
];
const TEXTS: ReadonlySet<string> = new Set(["text/plain", "text/markdown", "text/csv", "application/json"]);

export function verifiedType({ mediaType, content }: Pick<AnswerFile, "mediaType" | "content">): string {
  const declared = mediaType.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  const head = Buffer.from(content.subarray(0, 16)).toString("latin1");
  const found = SIGNATURES.find(([, bytes, at8 = ""]) => head.startsWith(bytes) && head.startsWith(at8, 8));
  if (found !== undefined) return found[0];
  return TEXTS.has(declared) && isUtf8(content) && !content.includes(0) ? declared : OCTETS;
}

const NAME_CHARACTERS_MAX = 100;

export function fileName(name: string): string {
  const last = name.split(/[/\\]/).at(-1) ?? "";
  return plainLine(last, NAME_CHARACTERS_MAX).replace(/^\.+/, "") || "file";
}

export function createUploader({ homeserver, ghosts, ledger, random, clock }: UploaderDependencies) {
  const attempt = async (
    { roomId, ghost }: Destination,
    file: AnswerFile,
    signal: AbortSignal,
  ): Promise<Outcome<UnknownObject>> => {
    const mimetype = verifiedType(file);
    const read = (actor: GhostActor) => isRoomEncrypted({ homeserver, ledger }, actor, roomId);
    const encrypted = await ghosts.acting(ghost, read, signal);
    if (encrypted.kind !== "ok") return encrypted;
    const sealed = encrypted.value ? encrypt(file.content, random) : undefined;
    const bytes = sealed?.bytes ?? file.content;
    const type = sealed === undefined ? mimetype : OCTETS;
    const uploaded = await ghosts.acting(ghost, (actor) => homeserver.upload(actor, bytes, type), signal);
    const name = fileName(file.name);
    return mapValue(uploaded, (url) => ({
      msgtype: mimetype.startsWith("image/") ? "m.image" : "m.file",
      body: name,
      filename: name,
      info: { mimetype, size: file.content.length },
      ...(sealed === undefined ? { url } : { file: { ...sealed.key, url } }),
      "m.mentions": {},
    }));
  };
  /** The event's content without a relation; undefined when the homeserver does not take the file, or not until then. */
  return async (to: Destination, file: AnswerFile, signal: AbortSignal, until: number) => {
    for (;;) {
      const uploaded = await attempt(to, file, signal);
      if (uploaded.kind === "ok") return uploaded.value;
      const isOver = signal.aborted || uploaded.kind === "refused" || clock.now() + uploaded.afterMs > until;
      if (isOver) return undefined;
      await clock.sleep(uploaded.afterMs, signal).catch(() => undefined);
    }
  };
}

const JWK_MEMBERS = { kty: "oct", alg: "A256CTR", ext: true, key_ops: ["encrypt", "decrypt"] };

function encrypt(content: Uint8Array, random: Random) {
  const key = random.bytes(32);
  // The lower half is the counter, which begins at zero.
  const iv = Buffer.concat([random.bytes(8), Buffer.alloc(8)]);
  const cipher = createCipheriv("aes-256-ctr", key, iv);
  const bytes = Buffer.concat([cipher.update(content), cipher.final()]);
  const unpadded = (value: Buffer) => value.toString("base64").replace(/=+$/, "");
  return {
    bytes,
    key: {
      v: "v2",
      key: { ...JWK_MEMBERS, k: key.toString("base64url") },
      iv: unpadded(iv),
      hashes: { sha256: unpadded(sha256(bytes)) },
    },
  };
}

export function createDownloader(deps: Pick<UploaderDependencies, "homeserver" | "ghosts">) {
  return async (
    ghost: GhostMxid,
    { server, mediaId, encryption }: AttachmentReference,
    bytesMax: number,
    signal: AbortSignal,
  ): Promise<Outcome<Uint8Array | "too_large" | "damaged">> => {
    const download = (actor: GhostActor) => deps.homeserver.download(actor, server, mediaId, bytesMax);
    return mapValue(await deps.ghosts.acting(ghost, download, signal), (bytes) => {
      if (bytes === undefined) return "too_large";
      return encryption === undefined ? bytes : (decrypt(bytes, encryption) ?? "damaged");
    });
  };
}

function decrypt(
  bytes: Uint8Array,
  { key, iv, sha256: digest }: NonNullable<AttachmentReference["encryption"]>,
): Uint8Array | undefined {
  if (!sha256(bytes).equals(Buffer.from(digest, "base64"))) return undefined;
  const cipher = createDecipheriv("aes-256-ctr", Buffer.from(key, "base64url"), Buffer.from(iv, "base64"));
  return Buffer.concat([cipher.update(bytes), cipher.final()]);
}
