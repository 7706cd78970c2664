// What the bridge says in rooms, in English, and with it every text that there is.
// Invariant: none holds anything of a question, an answer or an error.
import type { NoticeKind, NoticeReason } from "../ledger/states.ts";

export type Texts = typeof EN;

export const EN = {
  /** What happened, by kind of notice. */
  openings: {
    policy_denied: "I did not pass this question on.",
    rate_limited: "I did not pass this question on: there are too many at the moment.",
    capacity_exceeded: "I could not take this question.",
    delegation_stopped: "I have stopped working on this question.",
    delegation_canceled: "I have canceled this question, as you asked.",
    cancel_refused: "I have not canceled anything.",
    answer_refused: "I did not pass your answer on to the agent. Please ask again in a new message.",
    delegation_failed: "I could not get an answer to this question.",
    encrypted_room_refused:
      "This room is encrypted, and this bridge does not read encrypted rooms, so I cannot see what is asked " +
      "here. Please ask me in a room without encryption. Whoever runs the bridge decides whether it takes part " +
      "in encrypted rooms.",
    keys_missing:
      "I could not read encrypted messages here, because their keys did not reach me. To repair that, remove me " +
      "from this room and invite me again, or have a member share the room's keys with me; then ask again.",
  } satisfies Readonly<Record<Exclude<NoticeKind, "agent_directory" | "help">, string>>,
  /** Why, and who can repair it. */
  reasons: {
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
    rate_limited:
      "Ask again in a minute. Whoever runs this bridge can raise this agent's rate, or ask its operator to.",
    sender_rate_limited: "You have asked very often. Ask again in a minute.",
    server_rate_limited:
      "The users of your server have asked very often. Ask again in a minute. Whoever runs this bridge can raise their rate.",
    token_refused:
      "This bridge got no access to the agent. Whoever runs this bridge has to sort that out, if need be with " +
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
    attachment_refused:
      "This agent gets no files of this kind here. Ask without the file; whoever runs this bridge decides which files it gets.",
    attachment_too_large:
      "The file is larger than this agent may get. Send a smaller one; whoever runs this bridge can raise the limit.",
    attachment_unreadable: "The file cannot be read: it is gone, or it is damaged. Send it again.",
    attachment_unavailable: "The homeserver did not deliver the file. Send it again later.",
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
    room_unreachable: "I may no longer write in this room. Whoever runs the room can let me.",
    reply_refused: "The homeserver did not accept the answer. Whoever runs this bridge can look into that.",
    reply_deadline_exceeded:
      "There is an answer, but it could not be delivered here in time. Ask again; whoever runs this bridge can look " +
      "into that.",
    operator_canceled: "Whoever runs this bridge has canceled it.",
    sender_canceled: "You canceled it.",
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
    server_envelopes_exceeded:
      "Too many messages from your server could not be read yet, because their keys have not reached me. Ask again later.",
    global_envelopes_exceeded:
      "Too many messages could not be read yet, because their keys have not reached me. Ask again later; whoever runs " +
      "the bridge can raise the limit.",
    not_the_asker: "Only the person who asked can cancel a question. Whoever runs this bridge can, too.",
    already_ended: "This question has ended already.",
    nothing_to_cancel:
      "I do not know which question you mean. Reply with !cancel to your question, or to my message about it.",
    sender_device_untrusted:
      "It was sent from a device that this bridge does not trust. Verify that device with your other ones, or " +
      "ask whoever runs the bridge which devices it trusts.",
  } satisfies Readonly<Record<NoticeReason, string>>,
  /** What `keys_missing` says where encrypted rooms are no longer read: no key would repair it. */
  noLongerRead:
    "I could not read encrypted messages here, because this bridge has stopped reading encrypted rooms. Please " +
    "ask me in a room without encryption. Whoever runs the bridge decides whether it takes part in encrypted " +
    "rooms.",
  directory: {
    none: "No agents are offered here at the moment. Whoever runs this bridge can add some.",
    howToAsk: (server: string) =>
      `Invite an agent to a room and mention it with your question. Agents of ${server}:`,
    unavailable: "not available now: its identity is not verified; whoever runs this bridge can repair that",
    example: (example: string) => `For example: ${example}`,
    more: (count: number) => `… and ${count} more.`,
  },
  help: [
    "Mention an agent with your question, or reply to what it said.",
    "`!agents` lists the agents and what they do.",
    "`!cancel` as a reply to a question, or removing the question, stops work on it.",
    "`!help` shows this text.",
  ],
  /** Of a question that an agent asks. */
  question: {
    empty: "I need more information to go on.",
    howToAnswer: "Reply to this message to answer.",
    howToChoose: "Reply to this message, or react to it with one of these, to answer.",
  },
  /** Of the status message of a question that takes long; `waiting` is followed by the reason. */
  status: {
    working: "The agent is working on this question.",
    waiting: "This question is waiting.",
    behind: "Other questions in this room come first.",
    agent: "The agent has not taken it yet. I keep trying.",
    away: "The agent cannot be reached at the moment. I keep trying.",
    input: "The agent has asked something back and is waiting for the answer.",
    delivering: "The answer is on its way.",
    completed: "Done: the question is answered.",
    canceled: "This question was canceled.",
    failed: "This question ended without an answer.",
    cancel: "React to this message with ❌ to cancel the question.",
  },
  answer: {
    empty: "(The agent finished without a text answer.)",
    /** Ends the short form of a long answer. */
    continued: "The whole answer is in the thread of the question.",
  },
};
