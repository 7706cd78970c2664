// The intake envelope worker on a real ledger, with devices that have the keys that a test gives them and a homeserver that
// has the events that a test brings.
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { pino } from "pino";
import {
  createIntakeEnvelopeWorker,
  type IntakeEnvelopeObserver,
} from "../../../../src/bridge/crypto/wait-for-keys.ts";
import { createTransactionHandler } from "../../../../src/bridge/intake/handle-transaction.ts";
import { createNamespace } from "../../../../src/bridge/intake/namespace.ts";
import { createRecentEvents } from "../../../../src/bridge/intake/open-encrypted.ts";
import type { Outcome } from "../../../../src/bridge/matrix/request-result.ts";
import type { GhostMxid, ServerName } from "../../../../src/domain/identifiers.ts";
import { namedTarget } from "../../../support/agents.ts";
import { FakeDevices } from "../../../support/fake-devices.ts";
import { member } from "../../../support/intake.ts";
import { ghost, ledgerFixture, T0 } from "../../../support/ledger.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

export const KEY_WAIT_MS = 900_000;
const REQUESTS = { attempts: 5, firstAfter: 5_000, longestWait: 120_000 };
export type Raw = Record<string, unknown>;
const GHOST_GONE = {
  kind: "retry",
  cause: "ghost_refused",
  afterMs: 60_000,
  errcode: "M_UNKNOWN_DEVICE",
} as const;

export async function setUp(t: TestContext) {
  const base = await ledgerFixture(t);
  const clock = new ManualClock(T0);
  const devices = new FakeDevices();
  const recent = createRecentEvents(clock);
  const byGhost = new Map([[ghost("docs") as GhostMxid, namedTarget("docs")]]);
  const agents = {
    current: async () => ({ byGhost, partnerGhosts: [] }),
  };
  const namespace = createNamespace({
    serverName: "a.test" as ServerName,
    ghostPrefix: "agent_",
    senderLocalpart: "drawbridge",
  });
  const capacity = { roomQueue: 64, globalQueue: 4_096 };
  const common = {
    ledger: base.ledger,
    agents,
    namespace,
    clock,
    capacity,
    contextLifetimeMs: 86_400_000,
  };
  const handle = createTransactionHandler({
    ...common,
    encryption: { devices, takesPart: true, plainInEncrypted: true, keyWaitMs: KEY_WAIT_MS, recent },
  });
  /** What the homeserver has, by event ID; `undefined`: it does not give it; `hangs`: it does not answer. */
  const homeserver = new Map<string, Raw | "hangs" | undefined>();
  let fetchFails: Outcome<never> | undefined;
  /** Ghosts whose devices have stopped. */
  const gone = new Set<string>();
  const lines: string[] = [];
  const reasons: string[] = [];
  const observe: IntakeEnvelopeObserver = {
    ended: (end) => lines.push(end),
    keyRequest: (outcome) => lines.push(`request ${outcome}`),
    derived: () => {},
    expired: (reason) => reasons.push(reason),
    failed: () => lines.push("failed"),
  };
  const worker = createIntakeEnvelopeWorker({
    ...common,
    devices,
    recent,
    observe,
    log: pino({ level: "silent" }),
    keyRequests: REQUESTS,
    fetchEvent: async (as, _room, event, signal) => {
      if (fetchFails !== undefined || gone.has(as)) return fetchFails ?? GHOST_GONE;
      const raw = homeserver.get(event);
      if (raw === "hangs") {
        await new Promise((resolve) =>
          signal?.aborted ? resolve(undefined) : signal?.addEventListener("abort", resolve),
        );
        return { kind: "retry", cause: "stopped", afterMs: 0, errcode: undefined };
      }
      return raw === undefined
        ? { kind: "refused", status: 404, errcode: "M_NOT_FOUND" }
        : { kind: "ok", value: { ...raw, unsigned: { age: 5 } } };
    },
  });
  let transactions = 0;
  const bring = async (...events: Raw[]) => {
    transactions += 1;
    for (const event of events) homeserver.set(String(event["event_id"]), event);
    await handle(`t${transactions}`, events);
  };
  await bring(member(ghost("docs"), "join"), member("@alice:a.test", "join"));
  return {
    ...base,
    clock,
    devices,
    worker,
    homeserver,
    gone,
    lines,
    reasons,
    bring,
    /** Key requests by what they say, in order. */
    requests: () => devices.sent.map(({ content }) => content["action"]),
    failFetch: (outcome: Outcome<never> | undefined) => {
      fetchFails = outcome;
    },
    /** Lets time pass in steps, with a round at each. */
    pass: async (ms: number, stepMs = 1_000) => {
      for (let passed = 0; passed < ms; passed += stepMs) {
        await clock.advance(Math.min(stepMs, ms - passed));
        await worker.queue.round();
      }
    },
    states: async () =>
      Object.fromEntries(
        (
          await base.rows(
            "SELECT matrix_event_id AS event, state, terminal_reason AS reason FROM bridge_encrypted_intake",
          )
        ).map(({ event, state, reason }) => [event, reason ?? state]),
      ),
    /** Events in the order in which their delegations may be worked on. */
    order: async () => {
      const order: string[] = [];
      for (;;) {
        const claimed = await base.claim({ now: clock.now() });
        if (claimed.length === 0) return order;
        for (const { lease, sourceEventId } of claimed) {
          order.push(sourceEventId);
          const outcome = { state: "completed", stage: "reply", reason: "answered" } as const;
          await base.ledger.delegations.finish(lease, outcome, clock.now());
        }
      }
    },
  };
}

/** Polls until it is so; each poll is a query, which gives the worker time. */
export async function queriedUntil(isDone: () => Promise<boolean>): Promise<void> {
  for (let turns = 0; !(await isDone()); turns++) assert.ok(turns < 500, "it never came to this");
}
