// What the reference model of the ledger consists of. The field names are those of the projection in tables.ts, which
// reads the same facts from the real tables.
// Invariants: pure data; nothing here is imported from the ledger's SQL, only its closed sets.
import type {
  CancelReason,
  DelegationState,
  IntakeEnvelopeState,
  NoticeKind,
  NoticeReason,
  SendPurpose,
  TerminalReason,
} from "../../../src/bridge/ledger/states.ts";

/** One event that is sent for a delegation. */
export interface Send {
  readonly purpose: SendPurpose;
  readonly ordinal: number;
  state: "pending" | "sent" | "abandoned";
  attempted: boolean;
  hasContent: boolean;
}

export interface Delegation {
  /** Event and ghost. */
  readonly key: string;
  readonly event: string;
  readonly ghost: string;
  readonly room: string;
  readonly sender: string;
  readonly agent: string;
  readonly admittedAt: number;
  state: DelegationState;
  reason: TerminalReason | null;
  endedAt: number | null;
  holder: string | null;
  leaseUntil: number | null;
  fence: number;
  /** When it may be claimed again, once its room is past it; null while its room waits for it. */
  dueAt: number | null;
  triedAt: number | null;
  attempts: number;
  /** What is to be handed to the agent; null once the agent has it, or the delegation has ended. */
  hasPrompt: boolean;
  answerEvent: string | null;
  hasOptions: boolean;
  asked: number;
  /** Its question may be answered. */
  isAwaited: boolean;
  task: string | null;
  attempted: boolean;
  unsettled: boolean;
  cancel: CancelReason | null;
  /** It ended while it waited for its turn: its row stays until a claim has stepped over it. */
  endedInLine: boolean;
  sends: Send[];
}

export interface Envelope {
  readonly event: string;
  readonly room: string;
  readonly sender: string;
  readonly admittedAt: number;
  readonly deadline: number;
  state: IntakeEnvelopeState;
  reason: string | null;
  endedAt: number | null;
  isHeld: boolean;
  dueAt: number | null;
  wokenAt: number | null;
  fence: number;
  attempts: number;
  jobs: number;
}

export interface Notice {
  readonly kind: NoticeKind;
  readonly room: string;
  readonly ghost: string;
  readonly source: string | null;
  readonly reason: NoticeReason | null;
  readonly createdAt: number;
  state: "pending" | "sent" | "dropped";
  dueAt: number | null;
  isHeld: boolean;
  fence: number;
  attempts: number;
}

export interface Status {
  readonly key: string;
  event: string | null;
  dueAt: number;
  isHeld: boolean;
  fence: number;
}

export interface Room {
  /** What waits for its turn, in the room's order: the first is the head. */
  line: (Delegation | Envelope)[];
  /** When the head may be claimed, if it is a delegation. */
  turnAt: number;
  keysMissing: boolean;
}

/** An event of a transaction: it asks ghosts, or it cannot be decrypted yet. */
export interface Arrival {
  readonly event: string;
  readonly room: string;
  readonly sender: string;
  /** Undefined: an encrypted event whose key is missing. */
  readonly ghosts: readonly string[] | undefined;
}

export interface Limits {
  readonly room: number;
  readonly global: number;
  readonly server: number;
  readonly agent: number;
  readonly roomEnvelopes: number;
  readonly senderEnvelopes: number;
}

/** Who holds what: the fence tells the holder's own claim from the next one. */
export interface Claim {
  readonly key: string;
  readonly holder: string;
  readonly fence: number;
}

export const isDelegation = (one: Delegation | Envelope): one is Delegation => "ghost" in one;
export const keyOf = (event: string, ghost: string): string => `${event} ${ghost}`;
export const agentOf = (ghost: string): string => ghost.replace(/^@agent_(.*):.*$/, "$1");
export const serverOf = (user: string): string => user.slice(user.indexOf(":") + 1);
export const isOpen = (one: { readonly endedAt: number | null }): boolean => one.endedAt === null;
