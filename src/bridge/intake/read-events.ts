// The events of a transaction, parsed into types or recorded as malformed. Invariants: one unreadable event never
// affects another; of a malformed event only digest and reason are kept; nothing here throws, whatever is sent.
import * as z from "zod";
import { sha256 } from "../../domain/digest.ts";
import {
  type EventId,
  parseEventId,
  parseMember,
  parseRoomId,
  parseUserId,
  type TransactionId,
  type UserId,
} from "../../domain/identifiers.ts";
import { isObject, membersOf, type UnknownObject } from "../../domain/json.ts";
import { isTooDeep } from "../../domain/strict-json.ts";
import type { MalformedEvent, RoomEvent } from "../ledger/admission-types.ts";
import type { Attachment } from "../ledger/prompts.ts";
import { transactionIdIn } from "../ledger/transaction-ids.ts";
import { isMarkedAutomated } from "../matrix/automated.ts";
import { readAttachment } from "./read-attachment.ts";

interface SaidEvent extends RoomEvent {
  /** The event whose text it replaces: an edit. The relation stands outside a ciphertext, so that no key is needed. */
  readonly replaces: EventId | undefined;
  readonly isAutomated: boolean;
  readonly sentAs: TransactionId | undefined;
}

/** Of an edit, `body` is the new text. */
export interface MessageEvent extends SaidEvent {
  readonly type: "message";
  readonly msgtype: string;
  /** Of a message with a file: its caption, empty when there is none. */
  readonly body: string;
  readonly attachment: Attachment | undefined;
  readonly mentions: readonly UserId[];
  readonly leading?: LeadingMention | undefined;
  readonly threadRoot: EventId | undefined;
  /** The event replied to, unless it only stands there for clients that know no threads. */
  readonly inReplyTo: EventId | undefined;
  /** Of a message that stood in a ciphertext: the same for each replay of that ciphertext. */
  readonly indexDigest: Buffer | undefined;
}

export interface ReactionEvent extends RoomEvent {
  readonly type: "reaction";
  readonly reactsTo: EventId;
  readonly key: string;
  readonly isAutomated: boolean;
}

export interface MembershipEvent extends RoomEvent {
  readonly type: "membership";
  readonly user: UserId;
  readonly membership: z.infer<typeof Membership>;
  readonly direct: boolean;
}

export interface EncryptedEvent extends SaidEvent {
  readonly type: "encrypted";
  /** What it replies to, else the root of its thread, as far as that stands outside the ciphertext. */
  readonly refersTo: EventId | undefined;
  readonly raw: UnknownObject;
}

type OtherEvent = RoomEvent & { readonly type: "other" };

export type ReadableEvent =
  | MessageEvent
  | ReactionEvent
  | MembershipEvent
  | EncryptedEvent
  | (RoomEvent & { readonly type: "redaction"; readonly redacts: EventId })
  | (RoomEvent & { readonly type: "encryption" })
  | OtherEvent;

export function couldAsk({ msgtype, attachment, isAutomated }: MessageEvent): boolean {
  return (msgtype === "m.text" || attachment !== undefined) && !isAutomated;
}

/** Of what is known of a room's people, what is about the sender of an event, in the event's room. */
export function ownIn<One extends Pick<RoomEvent, "room" | "sender">>(
  { room, sender }: Pick<RoomEvent, "room" | "sender">,
  known: readonly One[],
): readonly One[] {
  return known.filter((one) => one.room === room && one.sender === sender);
}

/** Why an event could not be read. A closed set; it is stored and counted. */
export const MALFORMED_REASONS = [
  "not_an_object",
  "too_deep",
  "event_id",
  "room_id",
  "sender",
  "type",
  "origin_server_ts",
  "content",
  "state_key",
  "membership",
  "redacts",
  "msgtype",
  "body",
  "mentions",
  "relates_to",
] as const;
export type MalformedReason = (typeof MALFORMED_REASONS)[number];

class Malformed {
  readonly reason: MalformedReason;
  constructor(reason: MalformedReason) {
    this.reason = reason;
  }
}

const Membership = z.enum(["invite", "join", "leave", "ban", "knock"]);
const MENTIONS_MAX = 1_000;

function required<Value>(value: Value | undefined, reason: MalformedReason): Value {
  if (value === undefined) throw new Malformed(reason);
  return value;
}

function readCommon(raw: UnknownObject, position: number) {
  const event = required(parseEventId(raw["event_id"]), "event_id");
  const room = required(parseRoomId(raw["room_id"]), "room_id");
  const { type, origin_server_ts: originServerTs, content } = raw;
  const parse = type === "m.room.member" ? parseMember : parseUserId;
  const sender = required(parse(raw["sender"] ?? raw["user_id"]), "sender");
  if (typeof type !== "string" || type === "") throw new Malformed("type");
  const isTime = typeof originServerTs === "number" && Number.isSafeInteger(originServerTs);
  if (!isTime || originServerTs < 0) throw new Malformed("origin_server_ts");
  if (!isObject(content)) throw new Malformed("content");
  return { event, room, sender, originServerTs, position, type, content };
}

function readMentions({ "m.mentions": mentions = {} }: UnknownObject): UserId[] {
  if (!isObject(mentions)) throw new Malformed("mentions");
  const { user_ids: users = [] } = mentions;
  if (!Array.isArray(users) || users.length > MENTIONS_MAX) throw new Malformed("mentions");
  // Clients name whom a message replies to as well, and a user of another server may have any name.
  return users.flatMap((user) => parseUserId(user) ?? []);
}

function readRelations(content: UnknownObject): Pick<MessageEvent, "threadRoot" | "inReplyTo"> {
  const { "m.relates_to": relation = {} } = content;
  if (!isObject(relation)) throw new Malformed("relates_to");
  const { rel_type: type = "", event_id: root, "m.in_reply_to": reply, is_falling_back: fallback } = relation;
  if (typeof type !== "string") throw new Malformed("relates_to");
  const eventIn = (named: unknown) => required(parseEventId(named), "relates_to");
  const inReplyTo = reply === undefined ? undefined : eventIn(membersOf(reply)["event_id"]);
  const inThread = type === "m.thread";
  const threadRoot = inThread ? eventIn(root) : undefined;
  return { threadRoot, inReplyTo: inThread && fallback === true ? undefined : inReplyTo };
}

/** The mention that a message begins with (Matrix client-server API, "User and room mentions"), as clients write it. */
export type LeadingMention = { readonly user: UserId; readonly name: string };

const QUOTED = "<mx-reply>";
const QUOTED_END = "</mx-reply>";
// Each part ends where the next begins, so that a text without a link takes no more than a step for each character.
const LINK =
  /^\s*(?:<p>)?<a href="https:\/\/matrix\.to\/#\/([^"?]{1,1000})(?:\?[^">]{0,1000})?">([^<]{1,1000})<\/a>/;
const ENTITIES: Readonly<Record<string, string>> = {
  ...{ "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&nbsp;": "\u00a0" },
};

export function leadingMention({ formatted_body: html }: UnknownObject): LeadingMention | undefined {
  if (typeof html !== "string") return undefined;
  const own = html.startsWith(QUOTED) ? html.slice(html.indexOf(QUOTED_END) + QUOTED_END.length) : html;
  const [, link = "", name = ""] = LINK.exec(own) ?? [];
  const user = parseUserId(decoded(link));
  return user && { user, name: name.replace(/&[#a-z0-9]+;/g, (entity) => ENTITIES[entity] ?? entity) };
}

function decoded(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}

function relationOf(content: UnknownObject, type: string): UnknownObject | undefined {
  const relation = content["m.relates_to"];
  return isObject(relation) && relation["rel_type"] === type ? relation : undefined;
}

const replacedBy = (content: UnknownObject) => parseEventId(relationOf(content, "m.replace")?.["event_id"]);

function isEdit(content: UnknownObject): boolean {
  return "m.new_content" in content || relationOf(content, "m.replace") !== undefined;
}

/** An edit that names no event, or gives no new text, is of no use. @param outside the relation outside an encrypted content */
function readMessage(
  common: RoomEvent,
  content: UnknownObject,
  outside?: Pick<EncryptedEvent, "replaces">,
): MessageEvent | OtherEvent {
  const own = replacedBy(content);
  const other = outside?.replaces;
  const isReplacement = isEdit(content) || other !== undefined;
  const shown = isReplacement ? content["m.new_content"] : content;
  const replaces = isReplacement && (own ?? other) === (other ?? own) ? (own ?? other) : undefined;
  // A redacted message has no content left, and is not malformed.
  const isEmpty = Object.keys(content).length === 0;
  if (isEmpty || !isObject(shown)) return { ...common, type: "other" };
  const { msgtype, body } = shown;
  const isReadable = replaces !== undefined && typeof msgtype === "string" && typeof body === "string";
  if (isReplacement && !isReadable) return { ...common, type: "other" };
  if (typeof msgtype !== "string") throw new Malformed("msgtype");
  if (typeof body !== "string") throw new Malformed("body");
  const attached = readAttachment(shown, outside !== undefined);
  return {
    ...common,
    type: "message",
    msgtype,
    body: attached?.caption ?? body,
    attachment: attached?.attachment,
    mentions: readMentions(content),
    leading: leadingMention(shown),
    isAutomated: isMarkedAutomated(content),
    sentAs: transactionIdIn(content),
    indexDigest: undefined,
    ...readRelations(content),
    replaces,
  };
}

/** A reaction that is none, such as a redacted one, is an event without a use. */
function readReaction(common: RoomEvent, content: UnknownObject): ReactionEvent | OtherEvent {
  const annotation = relationOf(content, "m.annotation");
  const reactsTo = parseEventId(annotation?.["event_id"]);
  const key = annotation?.["key"];
  if (reactsTo === undefined || typeof key !== "string") return { ...common, type: "other" };
  return { ...common, type: "reaction", reactsTo, key, isAutomated: isMarkedAutomated(content) };
}

function readMembership(common: RoomEvent, raw: UnknownObject, content: UnknownObject): MembershipEvent {
  const user = required(parseMember(raw["state_key"]), "state_key");
  const membership = required(Membership.safeParse(content["membership"]).data, "membership");
  return { ...common, type: "membership", user, membership, direct: content["is_direct"] === true };
}

/** The ID is in the content since room version 11, beside it before. In the other place anybody can name any event. */
export function redactedBy(raw: UnknownObject, content: UnknownObject): EventId | undefined {
  const { redacts = content["redacts"] } = raw;
  const isOne = (content["redacts"] ?? redacts) === redacts;
  return isOne ? parseEventId(redacts) : undefined;
}

function referredTo(content: UnknownObject): EventId | undefined {
  try {
    const { inReplyTo, threadRoot } = readRelations(content);
    return inReplyTo ?? threadRoot;
  } catch {
    return undefined;
  }
}

function readEncrypted(common: RoomEvent, raw: UnknownObject, content: UnknownObject): ReadableEvent {
  // A redacted one has no ciphertext left.
  const replaces = replacedBy(content);
  if (Object.keys(content).length === 0 || (isEdit(content) && replaces === undefined)) {
    return { ...common, type: "other" };
  }
  const isAutomated = isMarkedAutomated(content);
  const sentAs = transactionIdIn(content);
  return { ...common, type: "encrypted", raw, replaces, refersTo: referredTo(content), isAutomated, sentAs };
}

function readEvent(raw: unknown, position: number): ReadableEvent {
  if (!isObject(raw)) throw new Malformed("not_an_object");
  if (isTooDeep(raw)) throw new Malformed("too_deep");
  const { type, content, ...common } = readCommon(raw, position);
  switch (type) {
    case "m.room.message":
      return readMessage(common, content);
    case "m.reaction":
      return readReaction(common, content);
    case "m.room.member":
      return readMembership(common, raw, content);
    case "m.room.redaction":
      return { ...common, type: "redaction", redacts: required(redactedBy(raw, content), "redacts") };
    case "m.room.encryption":
      if (raw["state_key"] !== "") throw new Malformed("state_key");
      return { ...common, type: "encryption" };
    case "m.room.encrypted":
      return readEncrypted(common, raw, content);
    default:
      return { ...common, type: "other" };
  }
}

/** Reads the `events` of a transaction, in order. @param raw from JSON whose nesting was bounded */
export function readEvents(raw: readonly unknown[]) {
  const events: ReadableEvent[] = [];
  const malformed: MalformedEvent[] = [];
  for (const [index, one] of raw.entries()) {
    try {
      events.push(readEvent(one, index));
    } catch (failure) {
      if (!(failure instanceof Malformed)) throw failure;
      const { event_id: event, room_id: room } = membersOf(one);
      const known = { event: parseEventId(event), room: parseRoomId(room) };
      malformed.push({ sha256: sha256(JSON.stringify(one)), reason: failure.reason, ...known });
    }
  }
  return { events, malformed };
}

export interface Inside {
  readonly type: string;
  readonly content: UnknownObject;
  readonly indexDigest: Buffer;
}

/** An encrypted event of which nothing more will come; it is known by the digest of what arrived. */
export function malformedEncrypted({ event, room, raw }: EncryptedEvent, reason: MalformedReason) {
  return { sha256: sha256(JSON.stringify(raw)), reason, event, room };
}

/** Reads the content of an encrypted event as that of a plain room; empty when it is no message. */
export function readDecrypted(event: EncryptedEvent, inside: Inside) {
  if (inside.type !== "m.room.message") return {};
  const { raw: _raw, replaces, refersTo: _refersTo, isAutomated, type: _type, ...common } = event;
  try {
    const read = readMessage(common, inside.content, { replaces });
    if (read.type !== "message") return {};
    const { indexDigest } = inside;
    return { message: { ...read, isAutomated: read.isAutomated || isAutomated, indexDigest } };
  } catch (failure) {
    if (!(failure instanceof Malformed)) throw failure;
    return { malformed: malformedEncrypted(event, failure.reason) };
  }
}
