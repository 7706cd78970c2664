// Which message asks which ghost. Pure. Invariants: only a person's text or file asks an agent; notices, messages marked as
// automated, of ghosts (own and partners') or redacted in the same transaction never do; plain text in an encrypted room
// counts only where allowed; what cannot be opened yet keeps its position as an intake envelope.
import { type GhostMxid, localpartOf, serverOf, type UserId } from "../../domain/identifiers.ts";
import { isPartnerGhost, type PartnerGhosts } from "../../rendered-files/agents-file.ts";
import type { AgentTarget } from "../agents/loaded-agents.ts";
import { allowsAnybody, isSenderAllowed } from "../agents/sender-policy.ts";
import {
  type About,
  type Derived,
  inRoom,
  type KnownFacts,
  type NewAnswer,
  type NewCancel,
  type NewDelegation,
  type NewEdit,
  type NewNotice,
  type OpenQuestion,
  type Posted,
  type RoomEvent,
  type RoomStateEvent,
} from "../ledger/admission-types.ts";
import { answerRefused } from "../ledger/agent-questions.ts";
import { isFor } from "../ledger/transaction-ids.ts";
import {
  CANCEL_COMMAND,
  type CancelResult,
  cancelByCommand,
  cancelByReaction,
  cancelRefused,
  redactedIn,
  withdrawnBy,
} from "./cancellations.ts";
import { agentTurnOf, answerByReaction, answerIn, contextOf, endedQuestion } from "./continued-exchanges.ts";
import { editedBy, editsOf, editsWaiting } from "./edits.ts";
import type { Namespace } from "./namespace.ts";
import type { WaitingEvent } from "./open-encrypted.ts";
import { promptOf, questionTextOf } from "./question-text.ts";
import { couldAsk, type MessageEvent, ownIn, type ReactionEvent, type ReadableEvent } from "./read-events.ts";

const COMMANDS: ReadonlyMap<string, "agent_directory" | "help"> = new Map([
  ["!agents", "agent_directory"],
  ["!help", "help"],
]);

/** What was said so long before a question, by its sender's clock, came late, as after the bridge was away. */
const CLOCKS_DIFFER_MS = 5 * 60_000;

export function roomStateOf(
  events: readonly ReadableEvent[],
  namespace: Namespace,
  targets: ReadonlyMap<GhostMxid, unknown>,
): RoomStateEvent[] {
  return events.flatMap((event): RoomStateEvent | RoomStateEvent[] => {
    const { room } = event;
    if (event.type === "encryption") return { kind: "encryption", room };
    if (event.type !== "membership" || event.membership === "knock") return [];
    const { user, membership, sender, direct, originServerTs, position } = event;
    if (!namespace.isGhost(user)) {
      if (namespace.isOwn(user) || membership === "invite") return [];
      return { kind: "member", room, user, joined: membership === "join", position };
    }
    return {
      ...{ kind: "ghost", room, ghost: user, direct, originServerTs, position, hasAgent: targets.has(user) },
      membership: membership === "ban" ? "leave" : membership,
      inviter: membership === "invite" ? sender : undefined,
    };
  });
}

export function candidatesOf(
  events: readonly ReadableEvent[],
  namespace: Namespace,
  partnerGhosts: readonly PartnerGhosts[],
) {
  const redacted = new Set(redactedIn(events).map(({ room, event }) => inRoom(room, event)));
  const considered = new Set<string>();
  const candidates = events.flatMap((event) => {
    if (event.type !== "message" && event.type !== "encrypted" && event.type !== "reaction") return [];
    if (event.isAutomated) return [];
    if (event.type === "message" && !couldAsk(event)) return [];
    if (isPartnerGhost(partnerGhosts, event.sender)) return [];
    if (namespace.isOwn(event.sender) || redacted.has(inRoom(event.room, event.event))) return [];
    if (considered.has(event.event)) return [];
    considered.add(event.event);
    return [event];
  });
  return {
    plain: candidates.filter((event) => event.type === "message"),
    encrypted: candidates.filter((event) => event.type === "encrypted"),
    reactions: candidates.filter((event) => event.type === "reaction"),
  };
}

export function postedIn(events: readonly ReadableEvent[], namespace: Namespace): Posted[] {
  return events.flatMap((one) => {
    if (one.type !== "message" && one.type !== "encrypted") return [];
    const { sentAs, sender, event, room, position } = one;
    if (sentAs === undefined || !isFor(sentAs, "question") || !namespace.isGhost(sender)) return [];
    return [{ transaction: sentAs, event, room, position, ghost: sender }];
  });
}

export function aboutOf(
  candidates: readonly MessageEvent[],
  partnerGhosts: readonly PartnerGhosts[] = [],
  waiting: readonly WaitingEvent[] = [],
  reactions: readonly ReactionEvent[] = [],
): About {
  const related = new Set(reactions.map(({ reactsTo }) => reactsTo));
  for (const { replaces } of [...candidates, ...waiting]) if (replaces !== undefined) related.add(replaces);
  const threads = new Map<string, NonNullable<About["threads"]>[number]>();
  for (const { room, sender, inReplyTo, threadRoot } of candidates) {
    if (inReplyTo !== undefined) related.add(inReplyTo);
    if (threadRoot === undefined) continue;
    related.add(threadRoot);
    threads.set(JSON.stringify([room, threadRoot, sender]), { room, root: threadRoot, sender });
  }
  return {
    rooms: [...new Set([...candidates, ...waiting, ...reactions].map(({ room }) => room))].sort(),
    related: [...related],
    threads: [...threads.values()],
    ...(candidates.some(({ body }) => body.trim().startsWith("!")) && { partnerGhosts }),
  };
}

function directGhost({ room, sender, position }: RoomEvent, known: KnownFacts): GhostMxid | undefined {
  const before = known.directUntil?.find((one) => one.room === room && position < one.position);
  const direct = before === undefined ? known.directWith.get(room) : before.direct;
  return direct?.person === sender ? direct.ghost : undefined;
}

/** The ghosts a message is addressed to: by mention, in a direct room, by reply, in a thread of theirs. */
function addressedBy(message: MessageEvent, known: KnownFacts, namespace: Namespace, added: NewDelegation[]) {
  const ghosts = new Set<GhostMxid>(message.mentions.filter((user) => namespace.isGhost(user)));
  const { inReplyTo, threadRoot, room } = message;
  for (const subject of known.subjects.filter((one) => one.room === room)) {
    const isReplied = subject.event === inReplyTo && subject.purpose !== undefined;
    if (isReplied || subject.event === threadRoot) ghosts.add(subject.ghost);
  }
  for (const { event, ghost, ...asked } of threadRoot === undefined ? [] : added) {
    const isInThread = asked.room === room && [event, asked.threadRoot].includes(threadRoot);
    if (isInThread && asked.refused !== "sender_policy_rejected") ghosts.add(ghost);
  }
  const direct = directGhost(message, known);
  if (direct !== undefined) ghosts.add(direct);
  // A ghost outside the room can neither answer nor read the message. For an unknown room (a new database) the
  // homeserver is trusted: it sends only events of rooms with a ghost.
  const present = known.ghostsIn.get(room);
  return [...ghosts].filter((ghost) => present === undefined || present.has(ghost)).sort();
}

function mayAskAnyone(targets: ReadonlyMap<GhostMxid, AgentTarget>, sender: UserId): boolean {
  return [...targets.values()].some(({ entry }) => isSenderAllowed(entry, sender));
}

export interface Asked {
  readonly candidates: readonly MessageEvent[];
  readonly reactions: readonly ReactionEvent[];
  readonly waiting: readonly WaitingEvent[];
  /** Questions of agents that came with them. */
  readonly posted?: readonly Posted[];
  readonly deadline: number;
  /** Whether plain text in an encrypted room is answered: where the sender's device need not be known. */
  readonly plainInEncrypted: boolean;
  /** When they came, where they could not be read then, milliseconds since the Unix epoch. */
  readonly cameAt?: number;
  /** An agent's conversation is continued if it ended later than that, milliseconds since the Unix epoch. */
  readonly contextSince: number;
}

const CANCEL_LENGTH_MAX = 512;

/** The command may follow a ghost's mention. Anybody may mention a thousand, so a pattern is made for one of them at most. */
function isCancelCommand(message: MessageEvent, namespace: Namespace): boolean {
  const body = questionTextOf(message);
  if (!body.endsWith(CANCEL_COMMAND) || body.length > CANCEL_LENGTH_MAX) return false;
  if (body === CANCEL_COMMAND) return true;
  const { leading } = message;
  const said = { body, inReplyTo: undefined, threadRoot: undefined, leading };
  const before = body.slice(0, -CANCEL_COMMAND.length);
  const name = before.trimEnd().replace(/[:,]$/, "").toLowerCase();
  const isNamed = (user: UserId) =>
    name.length < before.length &&
    [user, `@${localpartOf(user)}`, localpartOf(user)].some((one) => one.toLowerCase() === name);
  return [...new Set(message.mentions)].some(
    (user) =>
      namespace.isGhost(user) &&
      (isNamed(user) || (leading?.user === user && promptOf(said, user, undefined) === CANCEL_COMMAND)),
  );
}

export function interpretMessages(
  { candidates, reactions, waiting, posted = [], deadline, plainInEncrypted, contextSince, ...asked }: Asked,
  known: KnownFacts,
  targets: ReadonlyMap<GhostMxid, AgentTarget>,
  namespace: Namespace,
): Derived {
  const delegations: NewDelegation[] = [];
  const answers: NewAnswer[] = [];
  const cancels: NewCancel[] = [];
  const edits: NewEdit[] = [];
  const notices: NewNotice[] = [];
  let { openQuestions, subjects } = known;
  const open = new Set(openQuestions.map(({ delegation }) => delegation));
  const postedAt = new Map(posted.map(({ event, position }) => [event, position]));
  const nameOf = (ghost: GhostMxid) => targets.get(ghost)?.entry.displayName;
  // What this bridge knows nothing of may be a partner's, and of a partner's person that person's own bridge speaks.
  const isForPartner = ({ room, sender, ...by }: MessageEvent | ReactionEvent) => {
    const partners = known.partnersIn.get(room);
    const refersTo = "inReplyTo" in by ? (by.inReplyTo ?? by.threadRoot) : undefined;
    return partners !== undefined && (refersTo !== undefined || partners.has(serverOf(sender)));
  };
  const cancel = (result: CancelResult, by: MessageEvent | ReactionEvent) => {
    if (result.kind === "cancel") {
      cancels.push(...result.cancels);
      // What comes behind it finds the question ended.
      const ids = new Set(result.cancels.map(({ delegation }) => delegation).filter((id) => open.delete(id)));
      openQuestions = openQuestions.filter(({ delegation }) => !ids.has(delegation));
      subjects = subjects.map((one) =>
        ids.has(one.delegation) ? { ...one, endedBy: "sender_canceled" } : one,
      );
    } else if (mayAskAnyone(targets, by.sender) && !(result.subject === undefined && isForPartner(by))) {
      notices.push(...cancelRefused(result, by, known.speakers.get(by.room)));
    }
  };
  const react = (reaction: ReactionEvent) => {
    // A reaction is not encrypted, so that it counts as an answer where plain text does.
    const isPlainTaken = plainInEncrypted || !known.encryptedRooms.has(reaction.room);
    const answer = isPlainTaken ? answerByReaction(reaction, openQuestions, answers) : undefined;
    const result = answer === undefined ? cancelByReaction(reaction, known.subjects) : undefined;
    if (answer !== undefined) answers.push(answer);
    else if (result !== undefined) cancel(result, reaction);
  };
  const unread = waiting.filter(({ replaces, isOpened }) => replaces === undefined && isOpened !== true);
  const questions = [...known.waiting, ...unread];
  /** Events that ask nothing until a question of the same person has been read. */
  const behind = new Set<string>();
  const isBehind = (message: MessageEvent) =>
    message.indexDigest !== undefined &&
    ownIn(message, questions).some(({ event }) => [message.inReplyTo, message.threadRoot].includes(event));
  /** Whether an earlier message of the same person that may be the answer waits for its key, and holds the room. */
  const hasEarlier = (message: MessageEvent) =>
    message.indexDigest !== undefined &&
    ownIn(message, questions).some(
      ({ refersTo, position = -1 }) =>
        refersTo !== undefined &&
        refersTo === (message.inReplyTo ?? message.threadRoot) &&
        position < message.position,
    );
  const inOrder = [...candidates, ...reactions].sort((left, right) => left.position - right.position);
  for (const message of inOrder.filter(({ event }) => known.handled?.has(event) !== true)) {
    if (message.type === "reaction") {
      react(message);
      continue;
    }
    const { position, event, room, sender, originServerTs, threadRoot, attachment, indexDigest } = message;
    if (indexDigest === undefined && !plainInEncrypted && known.encryptedRooms.has(room)) continue;
    if (message.replaces !== undefined) {
      edits.push(...editsOf(message, known.subjects, delegations, nameOf));
      continue;
    }
    const isForgotten = originServerTs < known.forgottenBefore;
    const command = COMMANDS.get(message.body.trim());
    if (command !== undefined) {
      if (isForgotten) continue;
      // The bridge of the sender's own server answers where it has a ghost too, so that there is one answer.
      if (known.partnersIn.get(room)?.has(serverOf(sender)) === true) continue;
      const ghost = known.speakers.get(room);
      if (ghost !== undefined && mayAskAnyone(targets, sender)) {
        notices.push({ kind: command, room, ghost, source: event, asker: sender, threadRoot });
      }
      continue;
    }
    if (isCancelCommand(message, namespace)) {
      const withdrawn = withdrawnBy(message, delegations, known.subjects);
      const result = cancelByCommand(message, known.subjects, open);
      if (result.kind === "refused" && isBehind(message)) behind.add(event);
      else if (withdrawn.length === 0) cancel(result, message);
      for (const one of withdrawn)
        delegations[delegations.indexOf(one)] = { ...one, refused: "sender_canceled" };
      continue;
    }
    const isAfter = ({ since, tried, said }: OpenQuestion) =>
      since <= (asked.cameAt ?? since) &&
      tried <= originServerTs + CLOCKS_DIFFER_MS &&
      said.some((one) => (postedAt.get(one) ?? -1) < position);
    const answer = answerIn(message, openQuestions, answers, nameOf, isAfter);
    if (answer !== undefined) {
      if (hasEarlier(message)) behind.add(event);
      else answers.push(answer);
      continue;
    }
    const ended = endedQuestion(message, subjects);
    if (ended !== undefined) {
      notices.push(answerRefused(ended, event));
      continue;
    }
    const addressed = addressedBy(message, known, namespace, delegations);
    if (addressed.length === 0 && isBehind(message)) behind.add(event);
    for (const ghost of addressed) {
      const target = targets.get(ghost);
      // A ghost whose agent was removed answers with a notice instead of silence.
      const removed = target === undefined && known.ghostsIn.get(room)?.has(ghost);
      const agent = target?.agentId ?? (removed ? namespace.agentOf(ghost) : undefined);
      if (agent === undefined) continue;
      // An entry that allows nobody is revoked, and the dispatch refuses with that reason.
      const isRefused = target && allowsAnybody(target.entry) && !isSenderAllowed(target.entry, sender);
      delegations.push({
        ...{ position, event, room, sender, originServerTs, threadRoot, attachment, indexDigest },
        ...{ ghost, agent },
        targetFingerprint: target?.fingerprint ?? "none",
        refused: isForgotten ? "event_too_old" : isRefused ? "sender_policy_rejected" : undefined,
        agentTurn: agentTurnOf(message, known.recentAnswers),
        contextId: target && contextOf(message, target, known.subjects, contextSince),
        prompt: promptOf(message, ghost, target?.entry.displayName),
      });
    }
  }
  const envelopes = waiting
    // An unknown room counts as one with a ghost: the homeserver sends only events of such rooms.
    .filter(({ room }) => known.ghostsIn.get(room)?.size !== 0)
    .filter((one) => {
      if (one.replaces === undefined) return one.isOpened !== true || behind.has(one.event);
      if (one.isOpened === true) return editsWaiting(one, questions);
      return editsWaiting(one, [...questions, ...delegations]) || editedBy(one, known.subjects).length > 0;
    })
    .map((one) => {
      const { position, event, room, sender, originServerTs, fingerprint, replaces: edits, refersTo } = one;
      const relations = { edits, refersTo, direct: directGhost(one, known) };
      return { position, event, room, sender, originServerTs, fingerprint, ...relations, deadline };
    });
  return { delegations, answers, cancels, edits, notices, envelopes };
}
