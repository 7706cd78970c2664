// The appservice's HTTP side (Matrix application service API): transactions, user queries, ping. Invariants: nothing is read
// of a body before its token was checked; a transaction is answered 200 only after its commit, and otherwise only because of
// bad credentials, a body that is malformed or too large, or a database that cannot commit; no answer and no log line
// carries an event's content.
import { isUtf8 } from "node:buffer";
import { createHash, timingSafeEqual } from "node:crypto";
import type { Readable } from "node:stream";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { sha256 } from "../../domain/digest.ts";
import { errorName } from "../../domain/errors.ts";
import { type GhostMxid, parseUserId } from "../../domain/identifiers.ts";
import { membersOf } from "../../domain/json.ts";
import { parseUntrustedJson } from "../../domain/strict-json.ts";
import { readPruned } from "../matrix/read-pruned-json.ts";
import type { HandledTransaction, TransactionHandler } from "./handle-transaction.ts";

/** Every `outcome` of drawbridge_transactions_total. */
export const TRANSACTION_OUTCOMES = [
  "committed",
  "replayed",
  "malformed",
  "too_large",
  "not_recorded",
] as const;

export interface IntakeObserver {
  transaction(outcome: (typeof TRANSACTION_OUTCOMES)[number]): void;
  /** From a transaction's arrival to its acknowledgement. */
  acknowledged(durationMs: number): void;
  recorded(handled: HandledTransaction): void;
}

const TRANSACTION_ID_BYTES_MAX = 255;
/** Of a whole event, apart from its `unsigned`. */
const EVENT_BYTES_MAX = 64 * 1024;

class MatrixError extends Error {
  readonly status: number;
  readonly errcode: string;
  constructor(status: number, errcode: string, message: string) {
    super(message);
    this.status = status;
    this.errcode = errcode;
  }
}

/** Checks `Authorization: Bearer` against the homeserver's token, in time independent of both. */
function authenticator(hsToken: string): (request: FastifyRequest) => void {
  const expected = sha256(hsToken);
  return (request) => {
    const header = request.headers.authorization;
    if (header === undefined) throw new MatrixError(401, "M_MISSING_TOKEN", "no access token was given");
    const token = header.startsWith("Bearer ") ? header.slice("Bearer ".length) : "";
    if (!timingSafeEqual(sha256(token), expected)) {
      throw new MatrixError(403, "M_FORBIDDEN", "the access token is not the homeserver's");
    }
  };
}

/** `bodySha256`: of the exact body, also where parts of it were left out. */
type TakenBody = { readonly bytes: Buffer; readonly bodySha256: Buffer };

/** A body of at most so many bytes is read in an instant, whatever is in it. */
const SMALL_BYTES_MAX = 256 * 1024;

/**
 * The body, of one that is not small without those parts of events and messages that have too many values, and above the bound
 * without those that are longer than an event: what another server writes into an invitation has no limit, and a transaction
 * that is refused for it would be repeated for ever.
 */
async function takeBody(payload: Readable, { headers }: FastifyRequest, bytesMax: number) {
  const length = Number(headers["content-length"]);
  if (length <= Math.min(SMALL_BYTES_MAX, bytesMax)) {
    const bytes = Buffer.concat(await payload.toArray());
    return { bytes, bodySha256: sha256(bytes) };
  }
  const hash = createHash("sha256");
  async function* chunks() {
    // A request that is destroyed cannot be answered.
    for await (const chunk of payload.iterator({ destroyOnReturn: false })) {
      hash.update(chunk);
      yield chunk;
    }
  }
  const body = Object.assign(chunks(), { destroy: () => payload.resume() });
  const elementBytesMax = length <= bytesMax ? bytesMax : EVENT_BYTES_MAX;
  const bounds = { elementBytesMax, bytesMax, readBytesMax: Number.POSITIVE_INFINITY };
  const text = await readPruned(body, { what: "element_members", ...bounds });
  if (text !== undefined) return { bytes: Buffer.from(text), bodySha256: hash.digest() };
  throw Object.assign(new Error("the body is too large"), { statusCode: 413 });
}

function readBody(body: TakenBody | null | undefined) {
  if (body == null) throw new MatrixError(400, "M_NOT_JSON", "the body is empty");
  const { bytes, bodySha256 } = body;
  const parsed = isUtf8(bytes) ? parseUntrustedJson(bytes.toString("utf8")) : undefined;
  if (parsed === undefined) throw new MatrixError(400, "M_NOT_JSON", "the body is not JSON in UTF-8");
  const { events, ...extensions } = membersOf(parsed);
  if (!Array.isArray(events)) throw new MatrixError(400, "M_BAD_JSON", "the body has no list of events");
  return { events: events as readonly unknown[], extensions, bodySha256 };
}

function transactionIdOf(request: FastifyRequest): string {
  const { transactionId } = request.params as { transactionId: string };
  if (Buffer.byteLength(transactionId) > TRANSACTION_ID_BYTES_MAX || transactionId.includes("\0")) {
    throw new MatrixError(400, "M_INVALID_PARAM", "the transaction ID is not usable");
  }
  return transactionId;
}

export function createIntakeServer(options: {
  readonly hsToken: string;
  readonly bodyBytesMax: number;
  readonly handle: TransactionHandler;
  /** Called for each committed transaction, after the acknowledgement was handed to the network. */
  readonly onCommitted: (transaction: HandledTransaction) => void;
  /** Makes sure a ghost exists on the homeserver; false if there is no such agent. */
  readonly provideGhost: (ghost: GhostMxid) => Promise<boolean>;
  readonly observe: IntakeObserver;
  readonly clock: Clock;
  readonly log: Logger;
}): FastifyInstance {
  const { handle, observe, clock, log } = options;
  const server = Fastify({ logger: false, routerOptions: { maxParamLength: 1_024 } });
  server.removeAllContentTypeParsers();
  server.addContentTypeParser("*", (request: FastifyRequest, payload: Readable) =>
    takeBody(payload, request, options.bodyBytesMax),
  );
  const authenticate = authenticator(options.hsToken);
  server.addHook("onRequest", async (request) => authenticate(request));

  server.setErrorHandler((error: Error & { statusCode?: number; code?: string }, _request, reply) => {
    if (error instanceof MatrixError) {
      return reply.code(error.status).send({ errcode: error.errcode, error: error.message });
    }
    if (error.statusCode === 413) {
      // Repeated, it comes without its to-device messages, which another server can make this large.
      observe.transaction("too_large");
      const answer = { errcode: "M_TOO_LARGE", error: "the body is larger than this bridge takes" };
      return reply.code(413).send(answer);
    }
    if (error.statusCode !== undefined && error.statusCode < 500) {
      return reply.code(error.statusCode).send({ errcode: "M_UNKNOWN", error: "the request cannot be read" });
    }
    log.error({ code: errorName(error) }, "a request of the homeserver failed; it will come again");
    return reply.code(503).send({ errcode: "M_UNKNOWN", error: "not recorded; send it again" });
  });
  server.setNotFoundHandler((_request, reply) =>
    reply.code(404).send({ errcode: "M_UNRECOGNIZED", error: "no such endpoint" }),
  );

  const transaction = async (request: FastifyRequest, reply: FastifyReply) => {
    const begun = clock.now();
    try {
      const { events, ...extras } = readBody(request.body as TakenBody | null | undefined);
      const handled = await handle(transactionIdOf(request), events, extras);
      observe.transaction(handled.replayed ? "replayed" : "committed");
      observe.recorded(handled);
      reply.code(200).send({});
      observe.acknowledged(clock.now() - begun);
      options.onCommitted(handled);
      return reply;
    } catch (error) {
      observe.transaction(error instanceof MatrixError ? "malformed" : "not_recorded");
      throw error;
    }
  };
  server.put("/_matrix/app/v1/transactions/:transactionId", transaction);
  server.put("/transactions/:transactionId", transaction);

  server.get("/_matrix/app/v1/users/:userId", async (request, reply) => {
    const user = parseUserId((request.params as { userId: string }).userId);
    if (user !== undefined && (await options.provideGhost(user as GhostMxid)))
      return reply.code(200).send({});
    throw new MatrixError(404, "M_NOT_FOUND", "no agent has this user");
  });
  server.get("/_matrix/app/v1/rooms/:alias", async () => {
    throw new MatrixError(404, "M_NOT_FOUND", "the bridge has no room aliases");
  });
  server.post("/_matrix/app/v1/ping", async (_request, reply) => reply.code(200).send({}));
  return server;
}
