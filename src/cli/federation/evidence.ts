// drawbridge federation evidence: writes or checks an evidence pack about a partner.
import { join, resolve } from "node:path";
import { systemClock } from "../../domain/clock.ts";
import { parseDurationMs } from "../../domain/duration.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { parseJson } from "../../domain/json.ts";
import { counted } from "../../domain/printable.ts";
import { assemblePack, packProblems } from "../../federation/evidence/pack.ts";
import { CLOSING_ORDER } from "../../federation/plane-order.ts";
import { timestamp } from "../../federation/reconcile/context.ts";
import { readInput } from "../../runtime/read-input.ts";
import { PRIVATE, writeWhole } from "../../runtime/write-file.ts";
import { defineCommand, OPTION, type OptionValues, print, renderJson, say } from "../lib/command.ts";
import { probePartner } from "../lib/federation.ts";

const PACK_OPTIONS = [
  OPTION.federation,
  ["--since <time>", "from when on: 2026-01-31T03:00:00Z, or 2h for two hours ago"],
  ["--until <time>", "up to when; now when absent"],
  OPTION.probe,
  ["--output <folder>", "where the pack is written"],
  ["--verify <file>", "check every digest of a pack that was made"],
  OPTION.json,
] as const;
type PackOptions = OptionValues<typeof PACK_OPTIONS>;

export const evidenceCommand = defineCommand({
  arguments: [["[partner]", "server name, or name of the registry file"]],
  options: PACK_OPTIONS,
  help: `
Reads the border's violations, the gateway's access log and the bridge's audit file, probes the planes, and
writes one file, readable by this user alone. No message, prompt or answer is in it, nor can be.`,
  async run([name], options) {
    if (options.verify !== undefined) return verify(options.verify, options);
    if (name === undefined) throw usage("the partner is missing", "Name one, or a pack with --verify.");
    return writePack(name, options);
  },
});

export async function writePack(name: string, options: Pick<PackOptions, "config"> & Partial<PackOptions>) {
  const { output, since: from, until: to } = options;
  if (output === undefined) throw usage("--output is missing", "Name the folder for the pack.");
  if (from === undefined) throw usage("--since is missing", "Say from when on, such as --since 24h.");
  const since = timeOf("since", from, systemClock.now());
  const until = to === undefined ? undefined : timeOf("until", to, systemClock.now());
  if (until !== undefined && until < since) throw usage("--until is before --since", "Exchange them.");
  if (since > systemClock.now()) throw usage("--since has yet to come", "Name a time that is over.");
  const probed = await probePartner(name, options, CLOSING_ORDER);
  // Without an end, what the probes themselves leave in the streams belongs to the pack.
  const now = systemClock.now();
  const window = { since: timestamp(since), until: timestamp(Math.min(until ?? now, now)) };
  const pack = await assemblePack({ ...probed, window, clock: systemClock });
  const fileName = `evidence-${probed.partner.name}-${pack.made_at.replaceAll(/[-:]/g, "")}.json`;
  const file = join(resolve(output), fileName);
  writeWhole(file, renderJson(pack), PRIVATE);
  const streams = pack.streams.map(({ stream, state, matching, refused_lines: refused }) => {
    return { stream, state, matching, refused };
  });
  print(options, { file, streams }, () => `${file}\n`);
  for (const { stream, state, matching, refused } of streams) {
    const left = refused === 0 ? "" : `, ${refused} outside the schema and left out`;
    say(`${stream}: ${state === "read" ? `${counted(matching, "line")} of this partner${left}` : state}`);
  }
}

const usage = (message: string, hint: string) => new DrawbridgeError("usage", message, { hint });

function timeOf(option: string, text: string, nowMs: number): number {
  const ago = parseDurationMs(text);
  const named = /^\d{4}-\d{2}-\d{2}/.test(text) ? Date.parse(text) : Number.NaN;
  const at = ago === undefined ? named : nowMs - ago;
  // Nothing was recorded before 1970, and a pack has no form for times long before.
  if (at >= 0) return at;
  const hint = "Write 2026-01-31T03:00:00Z, or 2h for two hours ago.";
  throw usage(`--${option} ${JSON.stringify(text)} is no time`, hint);
}

function verify(file: string, options: Pick<PackOptions, "json">) {
  const value = parseJson(readInput(file, "Name the JSON file of a pack.", "usage").toString("utf8"));
  if (value === undefined) throw usage(`${file} cannot be read as JSON`, "Name the JSON file of a pack.");
  const problems = packProblems(value);
  const lines = problems.length === 0 ? ["Every digest is that of what it stands for."] : problems;
  print(options, { file, problems }, () => `${lines.join("\n")}\n`);
  return problems.length === 0 ? "ok" : "failed";
}
