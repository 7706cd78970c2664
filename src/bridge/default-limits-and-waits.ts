// What the bridge takes at most, how long it waits, and how long it keeps what has ended, with the defaults: the sections
// `limits` and `retention` of its configuration, and the waits of `encryption`. docs/reference/configuration.md says what
// each key means.
import * as z from "zod";
import { durationMs } from "../domain/duration.ts";

const MiB = 1024 * 1024;
const bytes = (most: number) => z.int().min(1_024).default(most);

/** Every setting has a default, so that all of it may be left out. */
export const section = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z.strictObject(shape).prefault({} as never);

const Rate = z.strictObject({ perMinute: z.number().positive(), burst: z.int().min(1) });

export const Limits = section({
  roomQueue: z.int().min(1).default(64),
  globalQueue: z.int().min(1).default(4_096),
  serverQueue: z.int().min(1).default(512),
  agentQueue: z.int().min(1).default(1_024),
  agentReserve: z.int().min(0).default(8),
  senderRate: Rate.optional(),
  serverRate: Rate.optional(),
  roomEnvelopes: z.int().min(1).default(64),
  senderEnvelopes: z.int().min(1).default(16),
  serverEnvelopes: z.int().min(1).default(512),
  globalEnvelopes: z.int().min(1).default(4_096),
  transactionBodyBytes: bytes(16 * MiB),
  concurrency: z.int().min(1).max(1_024).default(64),
  agentConcurrency: z.int().min(1).max(1_024).optional(),
  roomGate: durationMs("60s", { min: "1s" }),
  dispatchDeadline: durationMs("10m", { min: "1s" }),
  answerDeadline: durationMs("1h", { min: "1s" }),
  inputWait: durationMs("15m", { min: "1s" }),
  contextLifetime: durationMs("24h"),
  replyDeadline: durationMs("24h", { min: "1s" }),
  agentRequestTimeout: durationMs("60s", { min: "1s" }),
  answerBytes: bytes(1 * MiB),
  lease: durationMs("30s", { min: "3s" }),
  noticeInterval: durationMs("10m"),
  drain: durationMs("20s", { min: "1s" }),
});

export const Retention = section({
  delegations: durationMs("90d", { min: "1h" }),
  audit: durationMs("90d", { min: "1h" }),
  notices: durationMs("30d", { min: "1d" }),
  rooms: durationMs("90d", { min: "1d" }),
  handledEvents: durationMs("14d", { min: "1d" }),
  malformedEvents: durationMs("14d", { min: "1h" }),
  /** Which message of a room key was asked; longer than any room key is kept without use. */
  messageIndices: durationMs("400d", { min: "120d" }),
  deviceInbox: durationMs("1h", { min: "10m" }),
});

/** For room keys, and how long they are kept without use. */
export const KeyWaits = {
  sessionRetention: durationMs("90d", { min: "14d" }),
  keyWait: durationMs("15m", { min: "1s" }),
  keyRequests: section({
    attempts: z.int().min(0).max(100).default(5),
    firstAfter: durationMs("5s", { min: "100ms" }),
    longestWait: durationMs("2m", { min: "1s" }),
  }),
};
