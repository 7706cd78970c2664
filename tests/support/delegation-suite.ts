// A suite of tests of the delegation worker: a ledger that the tests share, and for each test a fault agent, a harness
// (delegation.ts), and questions that are read anew before each check of a condition.
import { after, before, type TestContext } from "node:test";
import type { DelegationOutcome } from "../../src/bridge/ledger/delegation-transitions.ts";
import { a2aMessageId } from "../../src/bridge/ledger/prompts.ts";
import type { EventId, RoomId, UserId } from "../../src/domain/identifiers.ts";
import { namedTarget } from "./agents.ts";
import {
  type CardOptions,
  cardOf,
  delegationHarness,
  type Harness,
  type HarnessOptions,
} from "./delegation.ts";
import { type FaultAgent, type FaultAgentOptions, startFaultAgent } from "./fault-agent.ts";
import { job, type LedgerFixture, ledgerFixture, room as roomOf, T0 } from "./ledger.ts";

/** A delegation as it is durable: read anew before each check of a condition. */
export interface Question {
  readonly id: string;
  readonly event: EventId;
  readonly room: RoomId;
  readonly a2aMessageId: string;
  readonly state: string;
  readonly outcome: Omit<DelegationOutcome, "sent"> | undefined;
  readonly replyEventId: string | null;
  readonly hasPrompt: boolean;
  readonly a2aAttempted: boolean;
  readonly a2aUnsettled: boolean;
  readonly agentVersion: string | null;
  readonly attempts: number;
  /** When it may be claimed next. */
  readonly dueAt: number;
}

const ALICE = "@alice:a.test" as UserId;

const QUESTIONS = {
  // Prepared: it is made thousands of times.
  name: "questions",
  text: `
  SELECT d.id::text, d.matrix_event_id AS event, d.room_id AS room, d.state, d.attempts,
         d.reply_event_id AS "replyEventId", d.prompt IS NOT NULL AS "hasPrompt",
         d.a2a_attempted AS "a2aAttempted", d.a2a_unsettled AS "a2aUnsettled", d.agent_version AS "agentVersion",
         (extract(epoch FROM coalesce(d.due_at, r.head_at)) * 1000)::float8 AS "dueAt",
         CASE WHEN d.terminal_at IS NOT NULL THEN jsonb_strip_nulls(jsonb_build_object(
           'state', d.state, 'stage', d.terminal_stage, 'reason', d.terminal_reason, 'notice',
           (SELECT kind FROM bridge_notices n
             WHERE n.source_event_id = d.matrix_event_id AND n.ghost_mxid = d.ghost_mxid))) END AS outcome
    FROM bridge_delegations d LEFT JOIN bridge_rooms r USING (room_id)`,
};

// Not TRUNCATE: it changes the catalogue, after which every connection plans all of its statements again.
const EMPTY = `
  DELETE FROM bridge_handled_events; DELETE FROM bridge_statuses; DELETE FROM bridge_sends; DELETE FROM bridge_delegations;
  DELETE FROM bridge_rooms; DELETE FROM bridge_encrypted_intake; DELETE FROM bridge_notices; DELETE FROM bridge_limiter;
  DELETE FROM bridge_audit;
  UPDATE bridge_capacity SET admitted = 0, counted_open = 0, counted_at_admitted = 0`;

export interface DelegationSetUp {
  readonly agent: FaultAgent;
  readonly fixture: LedgerFixture;
  readonly harness: Harness;
  /** Admits a question, `prompt of NAME`. */
  admit(name?: string, room?: string, admittedAt?: number, sender?: UserId): Promise<Question>;
  /** The question's event is redacted. */
  redact(question: Question): Promise<void>;
  /** How many limiter tokens of the agent are left; undefined when none was ever spent. */
  limiterTokens(): Promise<number | undefined>;
}

export interface DelegationSetUpOptions extends FaultAgentOptions {
  readonly card?: CardOptions;
  readonly harness?: Partial<HarnessOptions>;
}

/**
 * For a suite: a ledger that its tests share, emptied before each; and, for a test, a harness on it with a fault
 * agent whose card says what it does.
 */
export function delegationSuite(): (
  t: TestContext,
  options?: DelegationSetUpOptions,
) => Promise<DelegationSetUp> {
  const closing: (() => unknown)[] = [];
  let shared: LedgerFixture | undefined;
  before(async () => {
    shared = await ledgerFixture({ after: (close: () => unknown) => closing.push(close) });
  });
  after(async () => {
    for (const close of closing) await close();
  });
  return async (t, options = {}) => {
    if (shared === undefined) throw new Error("the suite has no ledger yet");
    const fixture = shared;
    await fixture.pool.query(EMPTY);
    return await setUpDelegation(t, fixture, options);
  };
}

async function setUpDelegation(
  t: TestContext,
  fixture: LedgerFixture,
  options: DelegationSetUpOptions,
): Promise<DelegationSetUp> {
  const agent = await startFaultAgent(t, options);
  const { agentId, ghost, fingerprint } = namedTarget("docs");
  const { streaming = false, dedupe = false } = options;
  const questions = new Map<string, Question>();
  let known = -1;
  const refresh = async () => {
    // Also what changed while it was read: a condition is checked on what is in the ledger then.
    while (known !== harness.ended) {
      known = harness.ended;
      for (const row of (await fixture.pool.query<Question>(QUESTIONS)).rows) {
        const question = questions.get(row.event);
        if (question !== undefined) Object.assign(question, row, { outcome: row.outcome ?? undefined });
      }
    }
  };
  const harness = delegationHarness(t, {
    ledger: fixture.ledger.delegations,
    card: cardOf(agent.url, { streaming, dedupes: dedupe, ...options.card }),
    refresh,
    ...options.harness,
  });
  return {
    agent,
    fixture,
    harness,
    admit: async (name = "q1", room = "r", admittedAt = T0, sender = ALICE) => {
      const target = { agent: agentId, ghost, targetFingerprint: fingerprint };
      const asked = job(name, { room: roomOf(room), sender, ...target });
      await fixture.admit([asked], { receivedAt: admittedAt });
      const question = { a2aMessageId: a2aMessageId(asked.event, ghost) } as Question;
      questions.set(asked.event, question);
      known = -1;
      await refresh();
      return question;
    },
    redact: async ({ event: redacted, room }) => {
      await fixture.admit([], { redacted: [{ room, event: redacted }] });
      known = -1;
    },
    limiterTokens: async () => {
      const [row] = await fixture.rows("SELECT tokens FROM bridge_limiter WHERE bucket = 'agent:docs'");
      return row === undefined ? undefined : Number(row["tokens"]);
    },
  };
}
