// What is known of the partners: from records alone, by probes, and as an evidence pack.
import { join, resolve } from "node:path";
import { systemClock } from "../../domain/clock.ts";
import { parseDurationMs } from "../../domain/duration.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { parseJson } from "../../domain/json.ts";
import { counted } from "../../domain/printable.ts";
import { type FederationStatus, federationStatus } from "../../federation/containment/federation-status.ts";
import { assemblePack, packProblems } from "../../federation/evidence/pack.ts";
import { CLOSING_ORDER, PLANE_NAMES, planeLabel } from "../../federation/plane-order.ts";
import { judge, PROBE_HEADER, probeRows, probeSummary } from "../../federation/probes/report.ts";
import { timestamp } from "../../federation/reconcile/context.ts";
import { readInput } from "../../runtime/read-input.ts";
import { PRIVATE, writeWhole } from "../../runtime/write-file.ts";
import { defineCommand, OPTION, type OptionValues, PARTNER } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { openForCommand, planeWords, probePartner } from "../lib/federation.ts";
import {
  print,
  renderJson,
  renderRows,
  renderTable,
  renderTableIfAny,
  say,
  short,
  withReason,
} from "../lib/output.ts";

export const statusCommand = defineCommand({
  options: [OPTION.federation, OPTION.json],
  help: `
Read from records alone; no server is asked. Exit code 5: a plane is behind the head, incomplete, deferred, held or failed.`,
  async run(_, options) {
    const federation = await openForCommand(options.config);
    const status = await federationStatus(federation);
    print(options, status, () => textOf(status));
    return exitCodeOf(status);
  },
});

function exitCodeOf({ head, refused, planes }: FederationStatus): ExitCode {
  if (refused !== null) return ExitCode.refused;
  const current = planes.every(
    ({ outcome, revision }) => outcome === "unmanaged" || (outcome === "in_force" && revision === head),
  );
  return current ? ExitCode.ok : ExitCode.incomplete;
}

function textOf({ head, accepted, refused, contained, removed, planes, drift }: FederationStatus): string {
  const [oldest] = planes.flatMap(({ lookedAt }) => lookedAt ?? []).sort();
  const never = planes.filter(({ outcome }) => outcome === "never").map(({ plane }) => planeWords(plane));
  return [
    `head      ${short(head)}\naccepted  ${short(accepted)}\n`,
    refused === null ? "" : `REFUSED: ${refused.detail} [${refused.reason}]\nhint: ${refused.hint}\n`,
    contained.length === 0 ? "No partner is contained.\n" : "",
    renderTableIfAny(
      ["CONTAINED", "SERVER", "DECLARED CLOSED"],
      contained.map((one) => [one.name, one.serverName, one.declaredClosed.join(", ")]),
    ),
    renderTableIfAny(
      ["NOT ADMITTED", "SERVER"],
      removed.map((one) => [one.name, one.serverName]),
    ),
    renderRows(planes, {
      PLANE: (one) => planeLabel(one.plane),
      REVISION: (one) => short(one.revision),
      DIGEST: (one) => short(one.digest),
      TIME: (one) => one.at ?? "-",
      OUTCOME: (one) => (one.outcome === "never" ? "never applied" : withReason(one.outcome, one.reason)),
      DRIFT: ({ outcome, drift }) =>
        outcome === "unmanaged" ? "-" : drift === null ? "not checked" : String(drift),
      "NEXT TRY": (one) => one.retryAt ?? "-",
    }),
    oldest === undefined
      ? ""
      : `From records; drift was looked for last at ${oldest}, or later. No server was asked now.\n`,
    never.length === 0
      ? ""
      : `Never applied: ${never.join(", ")}. What is in force there was not put there by this deployment, and is not known here.\n` +
        "hint: drawbridge reconcile --once applies all planes; contain and restore apply 5, 4, 2 and 3 alone.\n",
    renderTableIfAny(
      ["NOT REACHED", "PARTNER", "WHAT", "WHY", "HINT"],
      planes.flatMap(({ plane, outOfReach }) =>
        outOfReach.map((one) => [planeLabel(plane), one.partner, one.subject, one.reason, one.hint]),
      ),
    ),
    renderTableIfAny(
      ["DRIFT PUT RIGHT", "PLANE", "WHAT", "KIND", "KEPT TEXT"],
      drift.map((one) => [one.at, planeLabel(one.plane), one.subject, one.kind, one.kept ?? "-"]),
    ),
  ]
    .filter((section) => section !== "")
    .join("\n");
}

export const probeCommand = defineCommand({
  arguments: [PARTNER],
  options: [
    OPTION.federation,
    ["--plane <name>", "only this plane", { choices: PLANE_NAMES }],
    OPTION.probe,
    OPTION.json,
  ],
  help: `
Asks the operator's own parts, and with --probe-config tries from outside what the partner could try. Every attempt
is a content-free evidence item; what it sends into a room is an event that no client shows.
  ok     as the registry says     WRONG  the opposite was found     ?  nothing can be said
  -      open, and nobody is in that room
Exit code 1: something was found otherwise, could not be decided, or a closed plane was not shown closed.`,
  async run([name], options) {
    const planes = options.plane === undefined ? CLOSING_ORDER : [options.plane];
    const { current, partner, parts, inside, outside } = await probePartner(name, options, planes);
    const judgement = judge([...inside, ...outside], current.desired, partner, planes, parts);
    const { holds, unproven, unmanaged, items } = judgement;
    const json = {
      partner: { name: partner.name, serverName: partner.partner.serverName },
      revision: current.desired.revision,
      ...{ holds, unproven, unmanaged, items },
    };
    print(
      options,
      json,
      () => `${renderTable(PROBE_HEADER, probeRows(judgement))}\n${probeSummary(judgement, partner)}`,
    );
    return holds ? ExitCode.ok : ExitCode.failed;
  },
});

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
  if (options.output === undefined) throw usage("--output is missing", "Name the folder for the pack.");
  if (options.since === undefined)
    throw usage("--since is missing", "Say from when on, such as --since 24h.");
  const { since: from, until: to } = options;
  const since = timeOf("since", from, systemClock.now());
  const until = to === undefined ? undefined : timeOf("until", to, systemClock.now());
  if (until !== undefined && until < since) throw usage("--until is before --since", "Exchange them.");
  const probed = await probePartner(name, options, CLOSING_ORDER);
  // Without an end, what the probes themselves leave in the streams belongs to the pack.
  const now = systemClock.now();
  const window = { since: timestamp(since), until: timestamp(Math.min(until ?? now, now)) };
  const pack = await assemblePack({ ...probed, window, clock: systemClock });
  const fileName = `evidence-${probed.partner.name}-${pack.made_at.replaceAll(/[-:]/g, "")}.json`;
  const file = join(resolve(options.output), fileName);
  writeWhole(file, renderJson(pack), PRIVATE);
  const streams = pack.streams.map(({ stream, matching, refused_lines: refused }) => {
    return { stream, matching, refused };
  });
  print(options, { file, streams }, () => `${file}\n`);
  for (const { stream, matching, refused } of streams) {
    const left = refused === 0 ? "" : `, ${refused} outside the schema and left out`;
    say(`${stream}: ${counted(matching, "line")} of this partner${left}`);
  }
  return ExitCode.ok;
}

function usage(message: string, hint: string): DrawbridgeError {
  return new DrawbridgeError("usage", message, { hint });
}

function timeOf(option: string, text: string, nowMs: number): number {
  const ago = parseDurationMs(text);
  if (ago !== undefined) return nowMs - ago;
  const at = /^\d{4}-\d{2}-\d{2}/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isFinite(at)) return at;
  const hint = "Write 2026-01-31T03:00:00Z, or 2h for two hours ago.";
  throw usage(`--${option} ${JSON.stringify(text)} is no time`, hint);
}

function verify(file: string, options: Pick<PackOptions, "json">): ExitCode {
  const value = parseJson(readInput(file, "Name the JSON file of a pack.", "usage").toString("utf8"));
  if (value === undefined) throw usage(`${file} cannot be read as JSON`, "Name the JSON file of a pack.");
  const problems = packProblems(value);
  const lines = problems.length === 0 ? ["Every digest is that of what it stands for."] : problems;
  print(options, { file, problems }, () => `${lines.join("\n")}\n`);
  return problems.length === 0 ? ExitCode.ok : ExitCode.failed;
}
