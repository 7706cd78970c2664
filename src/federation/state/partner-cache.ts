// Partners that were read before, by the ID of their blob, so that a change of one of ten thousand reads one.
// Invariants: a line that is torn, or of another form, is read from the repository again; the file holds little more
// than what the newest revision holds, and is this user's alone, as the whole state folder is.
import { appendFileSync } from "node:fs";
import * as z from "zod";
import { sha256Tagged } from "../../domain/digest.ts";
import { isObject, parseJson } from "../../domain/json.ts";
import { PRIVATE, readIfPresent, writeWhole } from "../../runtime/write-file.ts";
import { Partner } from "../registry/partner.ts";
import type { StateFolder } from "./folder.ts";

/** Raised when a partner that was valid before may be no longer, without a change of the schema. */
const FORM = 1;
const SPARE_LINES = 1_000;

let header: string | undefined;

/** Changes whenever what a partner's file may hold does. */
function headerOf(): string {
  const schema = () => JSON.stringify(z.toJSONSchema(Partner, { io: "input", unrepresentable: "any" }));
  header ??= `drawbridge-partners ${FORM} ${sha256Tagged(schema())}`;
  return header;
}

/** `loadRegistry` adds to it what it reads. */
export class PartnerCache extends Map<string, Partner> {
  readonly #file: string;
  readonly #header = headerOf();
  /** The blobs that the file holds; undefined where it has to be written anew. */
  #kept: Set<string> | undefined;

  constructor(state: StateFolder) {
    super();
    this.#file = state.file("cache", "partners.jsonl");
    const [found, ...lines] = (readIfPresent(this.#file) ?? "").split("\n");
    if (found !== this.#header) return;
    for (const line of lines) {
      const entry = parseJson(line);
      if (Array.isArray(entry) && entry.length === 2 && isObject(entry[1]))
        this.set(entry[0], entry[1] as Partner);
    }
    this.#kept = new Set(this.keys());
  }

  /** Keeps on disk what was read since. @param wanted the blobs of the newest revision */
  save(wanted: readonly string[]): void {
    const kept = this.#kept;
    const isAnew = kept === undefined || kept.size > 2 * wanted.length + SPARE_LINES;
    const lines: string[] = isAnew ? [this.#header] : [];
    const next = isAnew ? new Set<string>() : kept;
    for (const id of wanted) {
      const partner = this.get(id);
      if (partner === undefined || next.has(id)) continue;
      lines.push(JSON.stringify([id, partner]));
      next.add(id);
    }
    const text = lines.map((line) => `${line}\n`).join("");
    if (isAnew) writeWhole(this.#file, text, PRIVATE);
    else if (text !== "") appendFileSync(this.#file, text);
    this.#kept = next;
  }
}
