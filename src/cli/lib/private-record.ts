// What the commands about the private record share: how they name its file and print what it lacks.

import { shellWord } from "../../domain/printable.ts";
import { valueAt } from "../../federation/offboarding/private-record/check.ts";
import type { PrivateRecordFile } from "../../federation/offboarding/private-record/file.ts";
import { RECORD_FIELDS } from "../../federation/offboarding/private-record/schema.ts";
import { renderTable, say } from "./output.ts";

export const RECORD_OPTION = [
  "--record <file>",
  "the private record, outside version control",
  { required: true },
] as const;

/** Every field with its value, a line each. */
export function recordTable({ values }: Pick<PrivateRecordFile, "values">): string {
  return renderTable(
    ["FIELD", "VALUE"],
    RECORD_FIELDS.map(({ path, says, isOptional }) => {
      const value = valueAt(values, path.split("."));
      if (value == null) return [path, isOptional ? "-" : `MISSING: ${says}`];
      return [path, textOf(value)];
    }),
  );
}

function textOf(value: unknown): string {
  if (!Array.isArray(value)) return String(value);
  if (value.length === 0) return "(none)";
  return value
    .map((item: unknown) =>
      typeof item === "object" && item !== null ? Object.values(item).map(String).join("=") : String(item),
    )
    .join(" ");
}

/** Names what is missing, each with the command that fills it in. */
export function reportMissing(file: string, missing: readonly string[]): void {
  if (missing.length === 0) return;
  say(`${missing.length} ${missing.length === 1 ? "field is" : "fields are"} missing:`);
  for (const path of missing) {
    const says = RECORD_FIELDS.find((field) => field.path === path)?.says ?? "";
    say(`  drawbridge offboarding set ${path} … --record ${shellWord(file)}    (${says})`);
  }
}
