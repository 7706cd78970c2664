// fed:status: what runs where, for people or for scripts.
import { renderJson } from "../../src/cli/lib/command.ts";
import { paletteFor } from "../progress.ts";
import { collectStatus } from "../status/collect.ts";
import { renderStatus } from "../status/render.ts";
import { namedLab, parseOptions } from "./options.ts";

const USAGE = `
Usage: ./task fed:status [--name LAB] [--json]

What runs where. The exit code is 0 when every program runs and answers, else 1.

  --name LAB  the lab; "default" when absent
  --json      everything that a client or script needs, passwords and tokens of the lab included;
              its schema is docs/reference/schemas/fed-status.schema.json
`;

export async function status(args: readonly string[]): Promise<number> {
  const options = parseOptions(args, USAGE, { json: { type: "boolean" } });
  if (options === undefined) return 0;
  const collected = await collectStatus(namedLab(options));
  process.stdout.write(
    options.flag("json") ? renderJson(collected) : renderStatus(collected, paletteFor(process.stdout)),
  );
  return collected.healthy ? 0 : 1;
}
