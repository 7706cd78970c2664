// Every text that the bridge says in rooms. Invariants: each language has all of them; `{name}` stands for a value, and a
// text has the same ones in every language (a test compares them); no text holds anything of a question, an answer or an
// error.
import type { NoticeKind, NoticeReason } from "../ledger/states.ts";

export interface Texts {
  /** What happened, by kind of notice. */
  readonly openings: Readonly<Record<Exclude<NoticeKind, "agent_directory" | "help">, string>>;
  /** Why, and who can repair it. */
  readonly reasons: Readonly<Record<NoticeReason, string>>;
  /** What `keys_missing` says where encrypted rooms are no longer read: no key would repair it. */
  readonly noLongerRead: string;
  readonly directory: {
    readonly none: string;
    readonly howToAsk: string;
    readonly unavailable: string;
    readonly example: string;
    readonly more: string;
  };
  /** Each a line of `!help`. */
  readonly help: readonly string[];
  /** Of a question that an agent asks. */
  readonly question: {
    readonly empty: string;
    readonly howToAnswer: string;
    readonly howToChoose: string;
  };
  /** Of the status message of a question that takes long. */
  readonly status: {
    readonly working: string;
    /** Begins what is followed by the reason. */
    readonly waiting: string;
    readonly behind: string;
    readonly agent: string;
    readonly away: string;
    readonly input: string;
    readonly delivering: string;
    readonly completed: string;
    readonly canceled: string;
    readonly failed: string;
    /** How to cancel. */
    readonly cancel: string;
  };
  readonly answer: {
    readonly empty: string;
    /** Ends the short form of a long answer. */
    readonly continued: string;
  };
}
