// Reads one record stream for a partner and a window of time.
// Invariants: memory stays bounded however long the file or a line is; a line that does not fit its schema is
// counted and never included; the digest covers exactly the bytes that were read.
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { canonicalize } from "../../domain/canonicalize.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import type { StreamEvidence, StreamSummary } from "./pack.ts";
import { readStreamLine, type StreamName, type StreamPartner } from "./stream-lines.ts";

const LINE_BYTES_MAX = 64 * 1024;
/** Of a partner that hammers at a door, the newest tell enough; the count tells the rest. */
const ITEMS_MAX = 5_000;
const NEWLINE = 0x0a;

export interface Window {
  /** ISO 8601, inclusive. */
  readonly since: string;
  readonly until: string;
}

interface Collected {
  readonly summary: StreamSummary;
  readonly items: readonly StreamEvidence[];
}

/** What stands in for a stream that this deployment does not have, or that has not been written yet. */
function nothing(stream: StreamName, state: "not_operated" | "absent" | "unreadable"): Collected {
  const counts = { lines: 0, matching: 0, included: 0, refused_lines: 0 };
  return { summary: { stream, state, bytes: 0, digest: null, ...counts }, items: [] };
}

/** Collects a stream from its file; `file` is undefined where the deployment does not have the stream. */
export async function collectStream(
  stream: StreamName,
  file: string | undefined,
  partner: StreamPartner,
  window: Window,
): Promise<Collected> {
  if (file === undefined) return nothing(stream, "not_operated");
  const reader = new StreamReader(stream, partner, window);
  try {
    for await (const chunk of createReadStream(file)) reader.take(chunk as Buffer);
  } catch (error) {
    const isAbsent = (error as NodeJS.ErrnoException).code === "ENOENT";
    return nothing(stream, isAbsent ? "absent" : "unreadable");
  }
  return reader.end();
}

class StreamReader {
  readonly #stream: StreamName;
  readonly #partner: StreamPartner;
  readonly #since: number;
  readonly #until: number;
  readonly #hash = createHash("sha256");
  readonly #items: StreamEvidence[] = [];
  #rest: Buffer[] = [];
  #restBytes = 0;
  #bytes = 0;
  #lines = 0;
  #matching = 0;
  #refused = 0;

  constructor(stream: StreamName, partner: StreamPartner, window: Window) {
    this.#stream = stream;
    this.#partner = partner;
    this.#since = Date.parse(window.since);
    this.#until = Date.parse(window.until);
  }

  take(chunk: Buffer): void {
    this.#hash.update(chunk);
    this.#bytes += chunk.length;
    let at = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, at)) {
      this.#keep(chunk.subarray(at, end));
      this.#line();
      at = end + 1;
    }
    this.#keep(chunk.subarray(at));
  }

  #keep(part: Buffer): void {
    this.#restBytes += part.length;
    // Beyond the bound only the length is remembered.
    if (this.#restBytes <= LINE_BYTES_MAX && part.length > 0) this.#rest.push(part);
  }

  #line(): void {
    const length = this.#restBytes;
    const bytes = Buffer.concat(this.#rest);
    this.#rest = [];
    this.#restBytes = 0;
    if (length === 0) return;
    this.#lines += 1;
    const read = length > LINE_BYTES_MAX ? undefined : this.#read(bytes);
    if (read === undefined) {
      this.#refused += 1;
      return;
    }
    const time = Date.parse(read.at);
    if (!read.concerns || time < this.#since || time > this.#until) return;
    this.#matching += 1;
    const body = { at: read.at, facts: read.facts, line_digest: sha256Tagged(bytes) };
    this.#items.push({ ...body, digest: sha256Tagged(canonicalize(body)) });
    if (this.#items.length > ITEMS_MAX) this.#items.shift();
  }

  #read(bytes: Buffer) {
    try {
      return readStreamLine(this.#stream, JSON.parse(bytes.toString("utf8")), this.#partner);
    } catch {
      return undefined;
    }
  }

  /** A last line without its end is still being written: it belongs to a later pack. */
  end(): Collected {
    return {
      summary: {
        stream: this.#stream,
        state: "read",
        bytes: this.#bytes,
        digest: `sha256:${this.#hash.digest("hex")}`,
        lines: this.#lines,
        matching: this.#matching,
        included: this.#items.length,
        refused_lines: this.#refused,
      },
      items: this.#items,
    };
  }
}
