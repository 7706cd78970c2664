// drawbridge verify: does this record prove that one organisation was removed from another? Printed on one screen.
// Invariants: it contacts no server, and reads the record file and the trust file alone; the answer is the first word; a
// list that would not fit is cut, with how much was cut, and `--json` has all of it; no text from an unverified file can
// send control sequences to a terminal.
import { counted } from "../domain/printable.ts";
import { STAGE_NAMES } from "../records/format/removal-stages.ts";
import { loadTrust } from "../records/format/trust.ts";
import { REASONS } from "../records/verify/reasons.ts";
import type { RecordReport } from "../records/verify/report.ts";
import { verifyRecord } from "../records/verify/verify-record.ts";
import { readInput } from "../runtime/read-input.ts";
import { defineCommand, print, required } from "./lib/command.ts";

export const command = defineCommand({
  arguments: [["<record>", "the record file that both organisations signed"]],
  options: [
    required("--trust <file>", "YAML: both organisations' public keys, and what is expected"),
    ["--json", "print everything that was found as one JSON object"],
  ],
  help: `
Works offline. Evaluates the evidence by the table of conditions (docs/reference/conditions.md), and prints what is
proved and who saw it, what is only attested, what is missing; if it does not verify, every reason with its hint.
docs/reference/offboarding-records.md explains each.

The exit code of a record:
  0  verified
  1  not verified
  2  the command line, the trust file or a key is wrong, or the file of the record cannot be opened
  5  everything that the two manage is closed, and they do not manage every part; what is left is named
  6  unilateral: everything that the remover manages is closed, what is left is named, and the partner has shown
     nothing closed`,
  run([file], options) {
    const report = verifyRecord(readInput(file, ABSENT, "usage"), loadTrust(options.trust));
    print(options, report, () => renderReport(report));
    const { outcome } = report;
    return outcome === "verified" ? "ok" : outcome === "not_verified" ? "failed" : outcome;
  },
});

const ABSENT =
  "If it was moved, name it where it is now; if it was deleted, the other organisation holds the same record, or restore it from a backup. If this removal has not ended yet, there is none: a record is written once both organisations have signed the completion, and drawbridge offboarding status says what is left.";

const LINES_MAX = 8;
const PLACES_MAX = 3;
/** Items of one paragraph. More are found in a hostile record, or where very many servers share rooms. */
const PARAGRAPH_MAX = 40;

function renderReport(report: RecordReport): string {
  const lines = [
    headline(report),
    ...about(report),
    "",
    ...(report.problems.length === 0 && report.outcome !== "not_verified" ? [] : problems(report)),
    ...(report.outcome === "unilateral" ? [""] : []),
    // What the remover does not manage, and what it waived, is told of a unilateral record too.
    ...(report.outcome === "not_verified" ? [] : found(report)),
  ];
  return `${lines.join("\n")}\n`;
}

function headline({ outcome, problems: wrong, unmanaged, waived }: RecordReport): string {
  const reasons = counted(new Set(wrong.map(({ reason }) => reason)).size, "reason");
  const parts = counted(unmanaged.length, "condition");
  const headlines: Readonly<Record<typeof outcome, string>> = {
    verified: `VERIFIED: both organisations signed this removal, and it is complete${waived === 0 ? "" : `, but for ${counted(waived, "subject")} out of reach that they waived`}.`,
    incomplete: `INCOMPLETE: both signed this removal; not shown: ${parts} about unmanaged parts.`,
    unilateral: "UNILATERAL: what the remover manages is closed; the partner has shown nothing closed.",
    not_verified: `NOT VERIFIED: ${reasons}, at ${counted(wrong.length, "place")}.`,
  };
  return headlines[outcome];
}

function about({ removal, digest, signers, statements: all }: RecordReport): string[] {
  if (removal === null) return [`File    ${digest}`];
  const { run, kind, trigger, remover, partner, completedAt } = removal;
  return [
    `Removal of ${partner} by ${remover}: ${kind}${trigger === null ? "" : `, ${trigger}`}`,
    `Run     ${run}, ${completedAt === null ? "no completion that verifies" : `completed ${completedAt}`}`,
    `File    ${digest}`,
    ...signers.map((one) => `Signed  ${one.organisation}: ${one.statements} of ${all} by key ${one.keyId}`),
  ];
}

function found(report: RecordReport): string[] {
  return [
    `Proved: ${counted(report.proved.length, "condition")} shown by evidence`,
    ...stageLines(report.proved, observedFrom),
    // What nobody manages is never among what is closed.
    ...(report.unmanaged.length === 0 ? [] : ["Unmanaged: nothing is known of"]),
    ...stageLines(report.unmanaged),
    `Only attested: ${counted(report.attested.length, "item")} said and signed, shown by nothing`,
    ...attestedLines(report.attested),
    `Left open${report.verified ? ", though it is verified" : ""}`,
    ...cut([
      ...report.missing.map(({ where, what }) => `${where}: ${what}`),
      "what was replicated before the removal is not retracted",
    ]),
  ];
}

/** As `Map.groupBy`, which the oldest Node.js that the verifier runs on does not have. */
function groupBy<Key, One>(all: readonly One[], keyOf: (one: One) => Key): ReadonlyMap<Key, readonly One[]> {
  const groups = new Map<Key, One[]>();
  for (const one of all) {
    const key = keyOf(one);
    const group = groups.get(key) ?? [];
    group.push(one);
    groups.set(key, group);
  }
  return groups;
}

function stageLines<One extends RecordReport["unmanaged"][number]>(
  all: readonly One[],
  more: (own: readonly One[]) => string = () => "",
): string[] {
  return STAGE_NAMES.flatMap((stage, index) => {
    const here = all.filter((one) => one.stage === stage);
    return [...groupBy(here, ({ organisation }) => organisation)].map(([organisation, own]) => {
      const names = own.map(({ condition }) => condition).join(", ");
      return `  ${index + 1} ${stage.padEnd(13)} ${organisation}: ${names}${more(own)}`;
    });
  });
}

function observedFrom(proved: readonly RecordReport["proved"][number][]): string {
  const groups = groupBy(
    proved.flatMap((proof) => Object.entries(proof.observed)),
    ([vantage]) => vantage,
  );
  const counts = [...groups].map(([vantage, all]) => `${vantage} ${all.reduce((sum, [, n]) => sum + n, 0)}`);
  return ` (${counts.join(", ")})`;
}

function attestedLines(attested: RecordReport["attested"]): string[] {
  const headOf = ({ organisation, stage }: RecordReport["attested"][number]) =>
    `${stage === null ? "" : `${STAGE_NAMES.indexOf(stage) + 1} ${stage} `}${organisation ?? "both"}: `;
  return [...groupBy(attested, headOf)].map(([head, all]) => {
    const items = all.map(({ what }) => what);
    const rest = items.length - PARAGRAPH_MAX;
    const shown = rest > 0 ? [...items.slice(0, PARAGRAPH_MAX), `${rest} more; see --json`] : items;
    return `  ${head}${shown.join("; ")}`;
  });
}

function cut(lines: readonly string[]): string[] {
  const shown = lines.slice(0, lines.length > LINES_MAX ? LINES_MAX - 1 : LINES_MAX);
  const rest = lines.length - shown.length;
  return [...shown, ...(rest > 0 ? [`and ${rest} more; see --json`] : [])].map((line) => `  ${line}`);
}

function problems({ problems: wrong, parts }: RecordReport): string[] {
  const lost = parts.filter(({ complete }) => !complete).map(({ part, title }) => `  ${part} ${title}`);
  return [
    ...[...groupBy(wrong, ({ reason }) => reason)].flatMap(([reason, all]) => {
      const rest = all.length - PLACES_MAX;
      const places = all.map(({ where, detail }) => (detail === undefined ? where : `${where} (${detail})`));
      const shown = places.slice(0, PLACES_MAX).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
      const { sentence, hint } = REASONS[reason];
      return [`${reason}: ${sentence}`, `  at    ${shown}`, `  hint  ${hint}`];
    }),
    ...(lost.length > 0 ? ["", "Not complete:", ...lost] : []),
  ];
}
