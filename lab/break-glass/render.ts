// The summaries of a containment and a restore, for people. Pure.
import * as z from "zod";
import { renderTable } from "../../src/cli/lib/command.ts";
import { CLOSING_ORDER, OPENING_ORDER, PLANE_NAMES, planeLabel } from "../../src/federation/plane-order.ts";
import { EvidenceItem } from "../../src/records/format/evidence-item.ts";
import type { Observed, Timed } from "../observe/attempt-watch.ts";
import { DIRECT_COLUMNS, leakRows, leakSummary } from "../observe/leak-rows.ts";
import type { ProgramsAfter } from "../observe/restarts.ts";
import { WITNESS } from "../organisations.ts";
import { restoreTask } from "../status/closed-partners.ts";
import type { Contained, Parties } from "./contain.ts";
import type { Restored } from "./restore.ts";

/** The parts of the product's JSON that are shown here. */
const Acted = z.object({
  planes: z.array(
    z.object({
      plane: z.enum(PLANE_NAMES),
      done: z.boolean(),
      outcome: z.string().nullable(),
      at: z.string().nullable(),
    }),
  ),
});
const Probed = z.object({
  holds: z.boolean(),
  items: z.array(z.object({ item: EvidenceItem, outcome: z.string() })),
});

export function renderContained({ lab, org, partner }: Parties, result: Contained): string {
  const hasWitness = result.observed.some(({ plane }) => plane === null);
  return [
    tableOf("contain", result.observed),
    actedLine("closed", result),
    ...result.earlierRuns.map(earlierProbes),
    probesOf(partner, result.probed, hasWitness),
    programsLine(org, result.programs),
    bystanderLine(partner, result.observed),
    `Next: ${restoreTask(lab.name, partner, org)}   # admits it again\n`,
  ].join("\n");
}

export function renderRestored({ org, partner }: Parties, result: Restored): string {
  const { audit, asker, ghost } = result.answered;
  const accepted = result.accepted.map(({ user, room }) => `  ${user}  ${room}\n`).join("");
  return [
    tableOf("restore", result.observed),
    actedLine("in force", result),
    `Invitations of ${org} that people of ${partner} have accepted: ${result.accepted.length}\n${accepted}`,
    programsLine(org, result.programs),
    `${asker} asked ${ghost}: ${audit.outcome}, ${audit.terminal_reason}\n`,
  ].join("\n");
}

function tableOf(act: "contain" | "restore", observed: readonly Observed[]): string {
  const order = act === "contain" ? CLOSING_ORDER : OPENING_ORDER;
  const rank = ({ plane }: Observed) => (plane === null ? order.length : order.indexOf(plane));
  const rows = observed
    .toSorted((one, other) => rank(one) - rank(other))
    .map((one) => {
      const [first, last] =
        act === "contain" ? [one.firstRefusal, one.lastPass] : [one.firstPass, one.lastRefusal];
      return [
        one.plane === null ? "- none" : planeLabel(one.plane),
        one.kind,
        after(first),
        after(last),
        answer(first),
        String(one.passed),
        String(one.refused),
        String(one.unclear),
      ];
    });
  const times =
    act === "contain"
      ? ["FIRST REFUSED", "LAST LET IN", "REFUSED BY"]
      : ["FIRST LET IN", "LAST REFUSED", "LET IN BY"];
  return renderTable(["PLANE", "ATTEMPT AS THE PARTNER", ...times, "LET IN", "REFUSED", "UNCLEAR"], rows);
}

/** Since the command was given. */
function after(timed: Timed | null): string {
  return timed === null ? "-" : seconds(timed.afterMs);
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(2)} s`;
}

function answer(timed: Pick<Timed, "layer" | "status" | "reason"> | null): string {
  if (timed === null) return "-";
  return [timed.layer, timed.status, timed.reason].filter((part) => part !== null).join(" ");
}

/** When the product itself reported each plane closed or in force. */
function actedLine(
  word: string,
  { acted, decidedAt }: Pick<Contained | Restored, "acted" | "decidedAt">,
): string {
  const planes = Acted.parse(acted).planes.map(({ plane, done, outcome, at }) =>
    done && at !== null
      ? `${planeLabel(plane)} ${Date.parse(at) < decidedAt ? "before" : seconds(Date.parse(at) - decidedAt)}`
      : `${planeLabel(plane)} NOT (${outcome ?? "not applied"})`,
  );
  return `The product reported them ${word}: ${planes.join(", ")}\n`;
}

/** The differences that an earlier probe run found and the last one did not. */
function earlierProbes(probed: Contained["probed"]): string {
  const found = Probed.parse(probed)
    .items.filter(({ outcome }) => outcome === "otherwise" || outcome === "unclear")
    .map(
      ({ item }) => `  ${item.at}  ${item.probe} ${item.subject ?? ""}: ${item.verdict}, ${answer(item)}\n`,
    );
  return `An earlier probe run found planes that were still open:\n${found.join("")}`;
}

function probesOf(partner: string, probed: Contained["probed"], hasWitness: boolean): string {
  const { holds, items } = Probed.parse(probed);
  const outside = items
    .filter(({ item, outcome }) => item.vantage === "partner" && outcome !== "left_out")
    .toSorted(
      (one, other) => CLOSING_ORDER.indexOf(one.item.plane) - CLOSING_ORDER.indexOf(other.item.plane),
    );
  const found = outside.map(({ item, outcome }) => [
    outcome === "as_wanted" ? "ok" : outcome === "otherwise" ? "WRONG" : "?",
    planeLabel(item.plane),
    item.probe,
    item.subject ?? "",
    item.verdict,
    answer(item),
  ]);
  const verdict = holds
    ? `The probes from outside agree: ${partner} is as the registry says.\n`
    : "The probes from outside do NOT all agree; see drawbridge federation probe.\n";
  const table = renderTable(["", "PLANE", "PROBE", "ON", "VERDICT", "WHAT ANSWERED"], found);
  // What reaches the other side in the shared rooms, directly and relayed by a third server; Markdown in the pack.
  const rows = leakRows(outside.map(({ item }) => item));
  const crossing = leakSummary(rows, hasWitness ? undefined : DIRECT_COLUMNS);
  return `${table}\n${verdict}${crossing}\n`;
}

function programsLine(org: string, { after: running, restarted }: ProgramsAfter): string {
  if (restarted.length > 0) return `RESTARTED at ${org}: ${restarted.join(", ")}\n`;
  const programs = Object.entries(running).map(([name, pid]) => `${name} ${pid}`);
  return `No program of ${org} was restarted, by process ID: ${programs.join(", ")}\n`;
}

function bystanderLine(partner: string, observed: readonly Observed[]): string {
  const messages = observed.filter(({ plane }) => plane === null);
  if (messages.length === 0) {
    return `No third server that ${partner} knows is running: ./task fed:up --with-witness adds one, and shows that it is not affected.\n`;
  }
  const isWhole = messages.every(({ passed, refused, unclear }) => passed > 0 && refused + unclear === 0);
  const count = messages.reduce((sum, { passed }) => sum + passed, 0);
  return isWhole
    ? `${partner} and ${WITNESS} went on writing in a room of their own: ${count} messages, none lost.\n`
    : `${partner} and ${WITNESS} were AFFECTED; see the table.\n`;
}
