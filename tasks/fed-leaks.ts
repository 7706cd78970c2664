// Measures anew what a third server relays after each measure, on three homeservers of its own.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { LeakTable, renderLeakTable } from "../src/federation/probes/leaks.ts";
import { measureLeaks } from "../tests/support/leaks.ts";
import { ROOT } from "./run-program.ts";
import type { Task } from "./task.ts";

const RECORD = join(ROOT, "docs", "reference", "federation-leaks.json");

export const task: Task = {
  name: "fed:leaks",
  summary:
    "What a third server still relays after each measure, measured; --json, --update rewrites the page's record.",
  needs: {
    python: true,
  },
  async run(args) {
    const table = LeakTable.parse(await measureLeaks((text) => process.stderr.write(`${text}\n`)));
    const json = `${JSON.stringify(table, null, 2)}\n`;
    process.stdout.write(args.includes("--json") ? json : renderLeakTable(table));
    if (args.includes("--update")) writeFileSync(RECORD, json);
    return 0;
  },
};
