// A private record before it is filled in: every field, with what belongs there.
import { RECORD_FIELDS } from "./fields.ts";

/** Values that are known before anybody fills anything in, by path. */
export type KnownValues = ReadonlyMap<string, string | readonly string[]>;

/** The text of a new record; what is not known is left open and named so. */
export function renderTemplate(known: KnownValues): string {
  const lines = [
    "# Private offboarding record. Keep it outside version control, readable by its owner alone.",
    "# Name roles or staff numbers; no names, addresses, secrets, and nothing that was said in a room.",
    "version: 1",
  ];
  let open: readonly string[] = [];
  for (const { path, says, optional } of RECORD_FIELDS) {
    const steps = path.split(".");
    const shared = steps.slice(0, -1).findIndex((step, depth) => open[depth] !== step);
    const from = shared === -1 ? steps.length - 1 : shared;
    for (let depth = from; depth < steps.length - 1; depth++)
      lines.push(`${"  ".repeat(depth)}${steps[depth]}:`);
    open = steps.slice(0, -1);
    const value = known.get(path);
    const written = value === undefined ? "null" : JSON.stringify(value);
    const hint = value === undefined ? `  # ${optional === true ? "optional: " : "missing: "}${says}` : "";
    lines.push(`${"  ".repeat(steps.length - 1)}${steps.at(-1)}: ${written}${hint}`);
  }
  return `${lines.join("\n")}\n`;
}
