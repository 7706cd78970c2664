// Bounds on what is read from an agent. Invariants: no more than the allowed bytes of one body, or of one event of a stream,
// are kept, and no more values are parsed than take an instant; each byte is looked at a fixed number of times, however
// slowly it comes; only whole events of valid JSON, not nested too deep, pass, so that the SDK prints and half-reads nothing,
// and makes no more bytes of an answer than it has; the connection is dropped at the first fault; a stream has a bounded
// number of events, between which other work runs.
import { membersOf, parseJson } from "../../../domain/json.ts";
import { JSON_DEPTH_MAX, measureJson } from "../../../domain/strict-json.ts";

/** Why a body ended early: over its bound, not what was promised, or cut off by the connection. */
export type BodyFault = "too_large" | "garbage" | "broken";
type OnFault = (fault: BodyFault) => void;
/** Told of the bytes as they are taken, and of each value in them as if it were further ones. */
type OnRead = (bytes: number) => void;
type Bytes = ReadableStream<Uint8Array>;

/** A stream may bring this many times the bound in all; an agent with more to say is polled instead. */
const STREAM_TOTAL_FACTOR = 16;
/** So many events in all, empty ones too: the smallest cost far more than their bytes. */
const STREAM_EVENTS_MAX = 65_536;
/** Lists, objects and members of one body, or of one event: each costs far more time and memory than its bytes do. */
const VALUES_MAX = 65_536;
/** To take in a value costs as much time as so many bytes of a text. */
const VALUE_BYTES = 16;
/** What is taken at once of a chunk: other work runs between two pieces that bring many events. */
const PIECE_BYTES = 16 * 1024;

class GuardError extends Error {
  readonly fault: BodyFault;
  constructor(fault: BodyFault) {
    super(`body refused: ${fault}`);
    this.fault = fault;
  }
}

/** Where parts of A2A 1.0 and 0.3 hold bytes, as base64. Of an object there the SDK makes as many bytes as its `length` says. */
const BYTES: ReadonlySet<string> = new Set(["raw", "bytes", "fileWithBytes", "file_with_bytes"]);
/** The agent's own JSON, which the SDK only passes on. */
const OWN: ReadonlySet<string> = new Set(["data", "metadata"]);

function claimsBytes(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(claimsBytes);
  return Object.entries(membersOf(value)).some(([name, one]) =>
    BYTES.has(name) ? typeof membersOf(one)["length"] === "number" : !OWN.has(name) && claimsBytes(one),
  );
}

/** To find it in a text costs far less than to walk through what is made of that; a name may be written with escapes. */
const MAY_CLAIM = /length|\\u/;

/** Undefined for what must not pass. @throws GuardError before anything is made of a text with too many values */
function parseBounded(text: string, onRead: OnRead | undefined): unknown {
  const { levels, values } = measureJson(text);
  onRead?.(VALUE_BYTES * Math.min(values, VALUES_MAX));
  if (values > VALUES_MAX) throw new GuardError("too_large");
  const value = levels > JSON_DEPTH_MAX ? undefined : parseJson(text);
  return MAY_CLAIM.test(text) && claimsBytes(value) ? undefined : value;
}

/** Passes chunks through `transform` until it throws a GuardError or the source fails; reports which. */
function guarded(
  body: Bytes,
  transform: (chunk: Uint8Array) => Uint8Array[],
  flush: () => Uint8Array[],
  onFault: OnFault,
  onRead: OnRead = () => undefined,
): Bytes {
  const reader = body.getReader();
  let isUnwanted = false;
  let isBurst = false;
  let rest: Uint8Array = new Uint8Array();
  const fail = (controller: ReadableStreamDefaultController<Uint8Array>, error: unknown) => {
    const fault = error instanceof GuardError ? error.fault : "broken";
    onFault(fault);
    reader.cancel().catch(() => undefined);
    controller.error(new GuardError(fault));
  };
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        if (isBurst) await new Promise((resolve) => setImmediate(resolve));
        for (;;) {
          const value = rest.length > 0 ? rest : (await reader.read()).value;
          // The consumer has canceled, so an end is no fault of the body.
          if (isUnwanted) return;
          const done = value === undefined;
          if (!done) onRead(Math.min(value.length, PIECE_BYTES));
          const passed = done ? flush() : transform(value.subarray(0, PIECE_BYTES));
          rest = value?.subarray(PIECE_BYTES) ?? rest;
          for (const chunk of passed) controller.enqueue(chunk);
          isBurst = passed.length > 1;
          if (done) controller.close();
          if (done || passed.length > 0) return;
        }
      } catch (error) {
        if (!isUnwanted) fail(controller, error);
      }
    },
    cancel: (reason) => {
      isUnwanted = true;
      return reader.cancel(reason);
    },
  });
}

/** A plain body of at most `bytesMax` bytes. It passes at its end, if it is empty, or JSON that is not nested too deep. */
export function boundedBody(body: Bytes, bytesMax: number, onFault: OnFault, onRead?: OnRead): Bytes {
  const held: Uint8Array[] = [];
  let length = 0;
  const take = (chunk: Uint8Array) => {
    length += chunk.byteLength;
    if (length > bytesMax) throw new GuardError("too_large");
    held.push(chunk);
    return [];
  };
  const flush = () => {
    const whole = Buffer.concat(held);
    if (whole.length === 0) return [];
    const value = parseBounded(whole.toString("utf8"), onRead);
    if (value === undefined) throw new GuardError("garbage");
    return [whole];
  };
  return guarded(body, take, flush, onFault, onRead);
}

/**
 * A stream of server-sent events (HTML standard, section 9.2) whose data is JSON objects.
 * @param isSound says whether an event's parsed data can be decoded; called before the event passes
 */
export function boundedEvents(
  body: Bytes,
  bytesMax: number,
  isSound: (data: unknown) => boolean,
  onFault: OnFault,
  onRead?: OnRead,
): Bytes {
  const decoder = new TextDecoder();
  const encoder = new TextEncoder();
  let total = 0;
  let events = 0;
  // The line that has not ended yet, in the pieces it came in: joining them at each chunk would make a line that comes
  // byte by byte cost the square of its length.
  let begun: string[] = [];
  let lines: string[] = [];
  let eventBytes = 0;

  const isWhole = (): boolean => {
    const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
    if (data.length === 0) return true;
    const value = parseBounded(data.join("\n"), onRead);
    return typeof value === "object" && value !== null && isSound(value);
  };
  const takeEvent = (): Uint8Array[] => {
    // Nothing passes that was not looked at: the SDK finds data behind a byte order mark as well.
    const read = lines.filter((line) => line.startsWith("data:") || line.startsWith("event:"));
    const event = read.length === 0 ? [] : [encoder.encode(`${read.join("\n")}\n\n`)];
    lines = [];
    eventBytes = 0;
    return event;
  };
  const grow = (piece: string): void => {
    begun.push(piece);
    eventBytes += Buffer.byteLength(piece);
    if (eventBytes > bytesMax) throw new GuardError("too_large");
  };
  const endLine = (): string => {
    const line = begun.join("");
    begun = [];
    return line.endsWith("\r") ? line.slice(0, -1) : line;
  };
  const take = (chunk: Uint8Array): Uint8Array[] => {
    total += chunk.byteLength;
    if (total > bytesMax * STREAM_TOTAL_FACTOR) throw new GuardError("broken");
    const passed: Uint8Array[] = [];
    const [rest = "", ...following] = decoder.decode(chunk, { stream: true }).split("\n");
    grow(rest);
    for (const piece of following) {
      const line = endLine();
      if (line !== "") lines.push(line);
      else if (++events > STREAM_EVENTS_MAX) throw new GuardError("broken");
      else if (!isWhole()) throw new GuardError("garbage");
      else passed.push(...takeEvent());
      grow(piece);
    }
    return passed;
  };
  const flush = (): Uint8Array[] => {
    const line = endLine();
    if (line !== "") lines.push(line);
    // A half event at the end means a cut connection, not a malformed answer.
    if (!isWhole()) throw new GuardError("broken");
    return takeEvent();
  };
  return guarded(body, take, flush, onFault, onRead);
}
