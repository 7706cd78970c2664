// What the bridge says in a room besides answers. Pure: kind, reason and the list of agents in, an event out.
// Invariants: nothing of a question, an answer or an error's text is ever said; each notice says what
// happened, why, and who can repair it; the types require a text for every kind and every reason.
import type { EventId, GhostMxid } from "../../domain/identifiers.ts";
import type { NoticeKind, NoticeReason } from "../ledger/states.ts";
import { relatesTo } from "../matrix/answer.ts";
import { escapeHtml } from "../matrix/markdown.ts";

/** An agent as the directory lists it. */
export interface DirectoryLine {
  readonly ghost: GhostMxid;
  readonly name: string;
  /** Whether a question to it would be passed on now. */
  readonly available: boolean;
}

export interface NoticeFacts {
  readonly kind: NoticeKind;
  readonly reason: NoticeReason | undefined;
  readonly sourceEventId: EventId | undefined;
  readonly threadRoot: EventId | undefined;
}

type PlainKind = Exclude<NoticeKind, "agent_directory">;

/** What happened. */
export const OPENINGS: Readonly<Record<PlainKind, string>> = {
  policy_denied: "I did not pass this question on.",
  rate_limited: "I did not pass this question on: there are too many at the moment.",
  capacity_exceeded: "I could not take this question.",
  delegation_stopped: "I have stopped working on this question.",
  delegation_canceled: "I have canceled this question, as you asked.",
  cancel_refused: "I have not canceled anything.",
  delegation_failed: "I could not get an answer to this question.",
  encrypted_room_refused:
    "This room is encrypted, and this bridge does not read encrypted rooms, so I cannot see what is asked " +
    "here. Please ask me in a room without encryption. Whoever runs the bridge decides whether it takes part " +
    "in encrypted rooms.",
  keys_missing:
    "I could not read encrypted messages here, because their keys did not reach me. To repair that, remove me " +
    "from this room and invite me again, or have a member share the room's keys with me; then ask again.",
};

/** What `keys_missing` says where encrypted rooms are no longer read: no key would repair it. */
export const NO_LONGER_READ =
  "I could not read encrypted messages here, because this bridge has stopped reading encrypted rooms. Please " +
  "ask me in a room without encryption. Whoever runs the bridge decides whether it takes part in encrypted " +
  "rooms.";

/** Why, and who can repair it. */
export const REASONS: Readonly<Record<NoticeReason, string>> = {
  answered: "It was answered.",
  room_capacity_exceeded:
    "Too many questions are waiting in this room. Ask again once some of them are answered.",
  server_capacity_exceeded:
    "Too many questions from your server are waiting on this bridge. Ask again once some of them are answered.",
  agent_capacity_exceeded: "Too many questions are waiting for this agent. Ask again in a few minutes.",
  global_capacity_exceeded:
    "Too many questions are waiting on this bridge. Ask again in a few minutes; whoever runs the bridge can " +
    "raise the limit.",
  sender_policy_rejected:
    "You are not among those who may ask this agent. Whoever runs this bridge can add you or your server.",
  agent_removed: "This agent is no longer offered here. Write !agents to see which ones are.",
  agent_card_untrusted:
    "The identity of this agent is not verified at the moment. Whoever runs this bridge can verify it again; " +
    "then ask once more.",
  rate_limited: "Ask again in a minute. Whoever runs this bridge can raise this agent's rate.",
  token_refused:
    "The agent's side refused this bridge's credentials. Whoever runs this bridge has to sort that out with " +
    "the agent's operator.",
  agent_refused:
    "The agent's side refused the request. Whoever runs this bridge has to sort that out with the agent's " +
    "operator.",
  agent_unavailable: "The agent could not be reached. Ask again later.",
  agent_failed: "The agent reported that it failed. Ask again, or put the question differently.",
  agent_rejected: "The agent declined to take this question.",
  agent_protocol_error:
    "The agent answered in a way this bridge does not understand. Its operator can look into that.",
  answer_too_large: "The answer is longer than this bridge takes. Ask for less at a time.",
  auth_required: "The agent asks for a sign-in that this bridge cannot give. Its operator can help.",
  input_wait_elapsed:
    "The agent asked something back, and nobody answered in time. Ask again when you have time to answer.",
  questions_exceeded: "The agent asked back too often. Ask again with more detail.",
  outcome_unknown:
    "The connection broke after the question was sent, and whether the agent took it cannot be found out. " +
    "Ask again only if it does no harm twice.",
  dispatch_deadline_exceeded: "The agent did not take it in time. Ask again later.",
  answer_deadline_exceeded: "The agent did not finish in time. Ask again later, or ask for less at a time.",
  source_redacted: "The question was removed.",
  sender_canceled: "You canceled it.",
  room_unreachable: "I may no longer write in this room. Whoever runs the room can let me.",
  reply_refused: "The homeserver did not accept the answer. Whoever runs this bridge can look into that.",
  reply_deadline_exceeded:
    "There is an answer, but it could not be delivered here in time. Ask again; whoever runs this bridge can look " +
    "into that.",
  operator_canceled: "Whoever runs this bridge has canceled it.",
  event_replayed: "This message repeats an earlier one under another name, so it is not a new question.",
  event_too_old:
    "This message is so old that I no longer know whether I have answered it. Ask again in a new message.",
  agent_turns_exceeded:
    "Several questions followed my answers at once, as from a program, so I have stopped here. A person can ask " +
    "again in a new message half a minute from now.",
  room_envelopes_exceeded:
    "Too many messages of this room could not be read yet, because their keys have not reached me. Ask again later.",
  sender_envelopes_exceeded:
    "Too many of your messages could not be read yet, because their keys have not reached me. Your client may " +
    "withhold them: check its settings for unverified devices.",
  sender_device_untrusted:
    "It was sent from a device that this bridge does not trust. Verify that device with your other ones, or " +
    "ask whoever runs the bridge which devices it trusts.",
  not_the_asker: "Only the person who asked can cancel a question. Whoever runs this bridge can, too.",
  already_ended: "This question has ended already.",
  nothing_to_cancel:
    "I do not know which question you mean. Reply with !cancel to your question, or to my message about it.",
};

/** Kinds whose opening says everything. */
const COMPLETE: ReadonlySet<NoticeKind> = new Set([
  "encrypted_room_refused",
  "keys_missing",
  "delegation_canceled",
]);

/** The body of a notice that is not the directory. */
function noticeText(kind: PlainKind, reason: NoticeReason | undefined, readsEncrypted: boolean): string {
  const opening = kind === "keys_missing" && !readsEncrypted ? NO_LONGER_READ : OPENINGS[kind];
  return reason === undefined || COMPLETE.has(kind) ? opening : `${opening} ${REASONS[reason]}`;
}

/**
 * The content of the `m.notice` event that says it. Nobody is pinged by one.
 * @param readsEncrypted whether ghosts take part in encrypted rooms now (`encryption.mode: on`)
 */
export function noticeContent(
  notice: NoticeFacts,
  directory: readonly DirectoryLine[],
  readsEncrypted: boolean,
): Readonly<Record<string, unknown>> {
  const said =
    notice.kind === "agent_directory"
      ? directoryBodies(directory)
      : { body: noticeText(notice.kind, notice.reason, readsEncrypted) };
  return {
    msgtype: "m.notice",
    ...said,
    "m.mentions": {},
    ...(notice.sourceEventId !== undefined && {
      "m.relates_to": relatesTo(notice.sourceEventId, notice.threadRoot),
    }),
  };
}

/** So many agents and so much of a name go into one event. */
const LISTED_MAX = 50;
const NAME_CHARACTERS_MAX = 80;

const NO_AGENTS = "No agents are offered here at the moment. Whoever runs this bridge can add some.";
const HOW_TO_ASK = "Invite an agent to a room and mention it with your question. Agents offered here:";
const UNAVAILABLE =
  "not available now, its identity is not verified; whoever runs this bridge can repair that";

function directoryBodies(lines: readonly DirectoryLine[]): Readonly<Record<string, string>> {
  if (lines.length === 0) return { body: NO_AGENTS };
  const sorted = lines.toSorted((left, right) => (left.ghost < right.ghost ? -1 : 1));
  const listed = sorted.slice(0, LISTED_MAX);
  const more = sorted.length > listed.length ? `… and ${sorted.length - listed.length} more.` : "";
  const nameOf = (line: DirectoryLine) => [...line.name].slice(0, NAME_CHARACTERS_MAX).join("");
  const suffix = (line: DirectoryLine) => (line.available ? "" : ` (${UNAVAILABLE})`);
  const plain = listed.map((line) => `- ${nameOf(line)}: ${line.ghost}${suffix(line)}`);
  const html = listed.map((line) => {
    const link = `https://matrix.to/#/${encodeURIComponent(line.ghost)}`;
    const name = escapeHtml(nameOf(line));
    return `<li><a href="${link}">${name}</a> <code>${escapeHtml(line.ghost)}</code>${suffix(line)}</li>`;
  });
  return {
    body: [HOW_TO_ASK, ...plain, ...(more === "" ? [] : [more])].join("\n"),
    format: "org.matrix.custom.html",
    formatted_body: `<p>${HOW_TO_ASK}</p><ul>${html.join("")}</ul>${more === "" ? "" : `<p>${more}</p>`}`,
  };
}
