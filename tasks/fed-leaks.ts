// Measures anew what a third server relays after each measure, on three homeservers of its own.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { LeakTable, renderLeakTable, replaceLeakTable } from "../src/federation/probes/leaks.ts";
import { measureLeaks } from "../tests/support/leaks.ts";
import { ROOT } from "./run-program.ts";

const RECORD = join(ROOT, "docs", "reference", "federation-leaks.json");
/** Pages that show the table. */
const PAGES = [
  join(ROOT, "docs", "reference", "federation.md"),
  join(ROOT, "docs", "operating", "partner-compromised.md"),
];

export async function measureAndShowLeaks(args: readonly string[]): Promise<number> {
  const table = LeakTable.parse(await measureLeaks((text) => process.stderr.write(`${text}\n`)));
  const json = `${JSON.stringify(table, null, 2)}\n`;
  process.stdout.write(args.includes("--json") ? json : renderLeakTable(table));
  if (!args.includes("--update")) return 0;
  writeFileSync(RECORD, json);
  for (const page of PAGES) writeFileSync(page, replaceLeakTable(readFileSync(page, "utf8"), table));
  return 0;
}
