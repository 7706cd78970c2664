// Partners that were read before, by the ID of their blob, so that a change of one of ten thousand reads one.
// Invariants: a line that is torn, or of another form, is read from the repository again; only what the wanted
// revision holds is parsed; the file is this user's alone, as the whole state folder is.

import { appendFileSync } from "node:fs";
import { z } from "zod";
import { sha256Tagged } from "../../domain/digest.ts";
import { parseJson } from "../../domain/json.ts";
import { PRIVATE, readIfPresent, writeWhole } from "../../runtime/write-file.ts";
import { Partner } from "../registry/partner.ts";
import type { StateFolder } from "./folder.ts";

/** Raised when a partner that was valid before may be no longer, without a change of the schema. */
const FORM = 1;
const SPARE_LINES = 1_000;

/** Changes whenever what a partner's file may hold does. */
function headerOf(): string {
  const schema = JSON.stringify(z.toJSONSchema(Partner, { io: "input", unrepresentable: "any" }));
  return `drawbridge-partners ${FORM} ${sha256Tagged(schema)}`;
}

export class PartnerCache {
  /** For `loadRegistry`, which adds what it reads. */
  readonly parsed = new Map<string, Partner>();
  readonly #file: string;
  readonly #lines = new Map<string, string>();
  readonly #header = headerOf();
  #startAnew = true;

  constructor(state: StateFolder) {
    this.#file = state.file("cache", "partners.jsonl");
    const [header, ...lines] = (readIfPresent(this.#file) ?? "").split("\n");
    if (header !== this.#header) return;
    this.#startAnew = false;
    for (const line of lines) {
      const space = line.indexOf(" ");
      if (space > 0) this.#lines.set(line.slice(0, space), line.slice(space + 1));
    }
  }

  /** Parses the cached partners of these blobs; returns the blobs that must be read. */
  prepare(blobIds: Iterable<string>): string[] {
    const unknown: string[] = [];
    for (const id of blobIds) {
      if (this.parsed.has(id)) continue;
      const line = this.#lines.get(id);
      const partner = line === undefined ? undefined : (parseJson(line) as Partner | undefined);
      if (partner === undefined) unknown.push(id);
      else this.parsed.set(id, partner);
    }
    return unknown;
  }

  /** Keeps what was read since; `wanted` is what the newest revision holds. */
  save(wanted: readonly string[]): void {
    const added = wanted.flatMap((id) => {
      const partner = this.parsed.get(id);
      return partner === undefined || this.#lines.has(id) ? [] : [[id, JSON.stringify(partner)] as const];
    });
    for (const [id, line] of added) this.#lines.set(id, line);
    if (this.#startAnew || this.#lines.size > 2 * wanted.length + SPARE_LINES) {
      const lines = wanted.flatMap((id) => {
        const line = this.#lines.get(id);
        return line === undefined ? [] : [`${id} ${line}`];
      });
      writeWhole(this.#file, `${[this.#header, ...lines].join("\n")}\n`, PRIVATE);
      this.#startAnew = false;
    } else if (added.length > 0) {
      appendFileSync(this.#file, added.map(([id, line]) => `${id} ${line}\n`).join(""));
    }
  }
}
