// Changes that somebody made by hand, recorded before they are undone. Invariants: a record names and never quotes; a
// drifted file's text is kept beside it, for this user alone, under its own digest; the newest are kept.

import { readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { sha256 } from "../../domain/digest.ts";
import { jsonText } from "../../domain/json.ts";
import { PRIVATE, writeWhole } from "../../runtime/write-file.ts";
import { Drift } from "../planes/plane.ts";
import type { StateFolder } from "./folder.ts";

const KEPT_MAX = 1_000;
const KEPT_FILE_BYTES_MAX = 16 * 1_048_576;

export const DriftRecord = z.strictObject({
  schema: z.literal("svc.federation.drift.v1"),
  at: z.iso.datetime(),
  ...Drift.shape,
  revision: z.string(),
  kept: z.string().nullable(),
});
export type DriftRecord = z.output<typeof DriftRecord>;

export function keepDrift(state: StateFolder, drift: Drift, revision: string, at: string): DriftRecord {
  const { plane, subject, kind, found } = drift;
  const kept = drift.file === undefined ? null : keepText(state, drift.file);
  const schema = "svc.federation.drift.v1";
  const record: DriftRecord = { schema, at, plane, subject, kind, found, revision, kept };
  const digest = sha256(jsonText(record)).toString("hex").slice(0, 8);
  state.write(`drift/${at.replaceAll(":", "")}-${plane}-${digest}.json`, record);
  forgetOldest(state, "drift");
  forgetOldest(state, "drift-texts");
  return record;
}

export function recentDrift(state: StateFolder, limit: number): readonly DriftRecord[] {
  return names(state, "drift")
    .sort()
    .reverse()
    .slice(0, limit)
    .flatMap((name) => state.read(DriftRecord, join("drift", name), () => undefined) ?? []);
}

function keepText(state: StateFolder, file: string): string | null {
  try {
    if (statSync(file).size > KEPT_FILE_BYTES_MAX) return null;
    const bytes = readFileSync(file);
    // Digest of what is kept, which may be younger than what was noticed.
    const name = `${sha256(bytes).toString("hex")}.txt`;
    writeWhole(state.file("drift-texts", name), bytes, PRIVATE);
    return join("drift-texts", name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}

function names(state: StateFolder, folder: string): string[] {
  try {
    return readdirSync(join(state.path, folder));
  } catch {
    return [];
  }
}

function forgetOldest(state: StateFolder, folder: string): void {
  const all = names(state, folder);
  if (all.length <= KEPT_MAX) return;
  const aged = all
    .map((name) => ({ name, at: statSync(join(state.path, folder, name)).mtimeMs }))
    .sort((left, right) => left.at - right.at);
  for (const { name } of aged.slice(0, all.length - KEPT_MAX)) {
    rmSync(join(state.path, folder, name), { force: true });
  }
}
