// What an event of a room is to a person who talks with an agent: a message, a question back, progress, a notice. Pure.
// Invariant: the purpose of an agent's event is read from the transaction ID that its bridge wrote into it; what carries
// none is a message of anybody.
import { isFor, transactionIdIn } from "../../src/bridge/ledger/transaction-ids.ts";
import type { RoomEvent } from "../matrix-user.ts";

/** `status`: the status message of a question that takes long; `edit`: its next form. */
export type SaidKind = "message" | "answer" | "question" | "status" | "edit" | "notice" | "file";

export interface Said {
  readonly kind: SaidKind;
  readonly event: string;
  readonly sender: string;
  /** The text; of a file its name, type and size. */
  readonly text: string;
  /** The event it replies to; of an edit the one it replaces. */
  readonly about: string | undefined;
  /** The root of its thread. */
  readonly thread: string | undefined;
}

interface Relation {
  readonly rel_type?: unknown;
  readonly event_id?: unknown;
  readonly "m.in_reply_to"?: { readonly event_id?: unknown };
}

type Content = RoomEvent["content"];

const textOf = (value: unknown) => (typeof value === "string" ? value : undefined);

/** What somebody said by an event; undefined when it is no message. */
export function saidBy({ type, content, event_id: event, sender }: RoomEvent): Said | undefined {
  if (type !== "m.room.message") return undefined;
  const relation = (content["m.relates_to"] ?? {}) as Relation;
  const target = textOf(relation.event_id);
  if (relation.rel_type === "m.replace") {
    const edited = (content["m.new_content"] ?? {}) as Content;
    return { kind: "edit", event, sender, text: bodyOf(edited), about: target, thread: undefined };
  }
  const thread = relation.rel_type === "m.thread" ? target : undefined;
  const about = textOf(relation["m.in_reply_to"]?.event_id);
  const kind = kindOf(content);
  return { kind, event, sender, text: kind === "file" ? fileOf(content) : bodyOf(content), about, thread };
}

function kindOf(content: Content): SaidKind {
  const id = transactionIdIn(content);
  const isNotice = content["msgtype"] === "m.notice";
  if (id === undefined) return isNotice ? "notice" : "message";
  if (isFor(id, "progress")) return "status";
  if (content["msgtype"] !== "m.text" && !isNotice) return "file";
  if (isFor(id, "question")) return "question";
  return isNotice ? "notice" : "answer";
}

const bodyOf = (content: Content) => textOf(content["body"]) ?? "";

function fileOf(content: Content): string {
  const info = (content["info"] ?? {}) as { readonly mimetype?: unknown; readonly size?: unknown };
  return `${bodyOf(content)} (${String(info.mimetype)}, ${String(info.size)} bytes)`;
}
