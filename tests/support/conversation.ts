// A person's side of a conversation with an agent: what is said goes through the real intake.

import type { AgentDirectory } from "../../src/bridge/agents/loaded-agents.ts";
import {
  createTransactionHandler,
  type HandledTransaction,
} from "../../src/bridge/intake/handle-transaction.ts";
import { createNamespace } from "../../src/bridge/intake/namespace.ts";
import type { Ledger } from "../../src/bridge/ledger/ledger.ts";
import type { Clock } from "../../src/domain/clock.ts";
import type { ServerName } from "../../src/domain/identifiers.ts";
import { ghost, type LedgerFixture, T0 } from "./ledger.ts";

export interface Said {
  readonly sender?: string;
  readonly room?: string;
  /** The event replied to, and the root of the thread. */
  readonly replyTo?: string;
  readonly thread?: string;
  readonly mentions?: readonly string[];
  /** When the sender's homeserver got it. */
  readonly sentAt?: number;
}

export const NAMESPACE = createNamespace({
  serverName: "a.test" as ServerName,
  ghostPrefix: "agent_",
  senderLocalpart: "drawbridge",
});

export interface Conversation {
  /** Says something in the room `!r` as `@alice:a.test`, and wakes nobody. */
  say(name: string, body: string, said?: Said): Promise<HandledTransaction>;
  /** Reacts to an event in the room `!r`. */
  react(name: string, to: string, key: string, sender?: string): Promise<HandledTransaction>;
  /** Events as a homeserver gives them. */
  events(...events: readonly object[]): Promise<HandledTransaction>;
}

export function conversation(options: {
  readonly ledger: Pick<Ledger, "intake" | "memberships">;
  readonly directory: Pick<AgentDirectory, "current">;
  readonly clock: Clock;
}): Conversation {
  const { ledger, directory: agents, clock } = options;
  const handle = createTransactionHandler({
    ledger,
    agents,
    namespace: NAMESPACE,
    clock,
    capacity: { roomQueue: 64, globalQueue: 4_096 },
    contextLifetimeMs: 86_400_000,
  });
  let transactions = 0;
  const events: Conversation["events"] = (...given) => handle(`conversation-${++transactions}`, given);
  return {
    events,
    say: (name, body, said = {}) => {
      const { sender = "@alice:a.test", room = "!r", replyTo, thread, mentions = [], sentAt = T0 } = said;
      return events({
        type: "m.room.message",
        event_id: `$${name}`,
        room_id: room,
        sender,
        origin_server_ts: sentAt,
        content: {
          msgtype: "m.text",
          body,
          "m.mentions": { user_ids: mentions },
          ...((replyTo !== undefined || thread !== undefined) && {
            "m.relates_to": {
              ...(thread !== undefined && { rel_type: "m.thread", event_id: thread }),
              ...(replyTo !== undefined && { "m.in_reply_to": { event_id: replyTo } }),
            },
          }),
        },
      });
    },
    react: (name, to, key, sender = "@alice:a.test") =>
      events({
        type: "m.reaction",
        event_id: `$${name}`,
        room_id: "!r",
        sender,
        origin_server_ts: T0,
        content: { "m.relates_to": { rel_type: "m.annotation", event_id: to, key } },
      }),
  };
}

/** The event ID of the last event that was sent for this purpose. */
export async function lastSent({ rows }: Pick<LedgerFixture, "rows">, purpose: string): Promise<string> {
  const [row] = await rows(
    "SELECT event_id FROM bridge_sends WHERE purpose = $1 AND event_id IS NOT NULL ORDER BY id DESC LIMIT 1",
    [purpose],
  );
  if (row === undefined) throw new Error(`nothing was sent as ${purpose}`);
  return row["event_id"] as string;
}

export const DOCS = ghost("docs");
