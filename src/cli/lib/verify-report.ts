// A verified record, or one that is not, on one screen.
// Invariants: the answer is the first word; a list that would not fit is cut, with how much was cut, and
// `--json` has all of it; no text from an unverified file can send control sequences to a terminal.
import { counted } from "../../domain/printable.ts";
import { STAGE_NAMES } from "../../records/format/stages.ts";
import { REASONS, type ReasonCode } from "../../records/verify/reasons.ts";
import type { RecordReport } from "../../records/verify/report.ts";

const LINES_MAX = 8;
const PLACES_MAX = 3;
/** Items of one paragraph. More are found in a hostile record, or where very many servers share rooms. */
const PARAGRAPH_MAX = 40;
const WIDTH = 120;

export function renderReport(report: RecordReport): string {
  const lines = [
    headline(report),
    ...about(report),
    "",
    ...(report.problems.length === 0 && report.outcome !== "not_verified" ? found(report) : problems(report)),
  ];
  return `${lines.join("\n")}\n`;
}

function headline({ outcome, problems: wrong, unmanaged }: RecordReport): string {
  switch (outcome) {
    case "verified":
      return "VERIFIED: both organisations signed this removal, and it is complete.";
    case "incomplete":
      return `INCOMPLETE: both signed this removal; ${counted(unmanaged.length, "condition")} about unmanaged parts is not shown.`;
    case "unilateral":
      return "UNILATERAL: the remover's side is closed; the partner has shown nothing closed.";
    case "not_verified": {
      const reasons = new Set(wrong.map(({ reason }) => reason)).size;
      return `NOT VERIFIED: ${counted(reasons, "reason")}, at ${counted(wrong.length, "place")}.`;
    }
  }
}

function about({ removal, digest, signers, statements }: RecordReport): string[] {
  if (removal === null) return [`File    ${digest}`];
  const { run, kind, trigger, remover, partner, completedAt } = removal;
  return [
    `Removal of ${partner} by ${remover}: ${kind}${trigger === null ? "" : `, ${trigger}`}`,
    `Run     ${run}, ${completedAt === null ? "no completion that verifies" : `completed ${completedAt}`}`,
    `File    ${digest}`,
    ...signers.map(
      (signer) =>
        `Signed  ${signer.organisation}: ${signer.statements} of ${statements} by key ${signer.keyId}`,
    ),
  ];
}

function found(report: RecordReport): string[] {
  return [
    `Proved: ${counted(report.proved.length, "condition")} shown by evidence`,
    ...stageLines(report.proved),
    ...unmanagedLines(report.unmanaged),
    `Only attested: ${counted(report.attested.length, "item")} said and signed, shown by nothing`,
    ...attestedLines(report.attested),
    "Left open, though it is verified",
    ...cut([
      ...report.missing.map(({ where, what }) => `${where}: ${what}`),
      "what was replicated before the removal is not retracted",
    ]),
  ];
}

function stageLines(proved: RecordReport["proved"]): string[] {
  return STAGE_NAMES.flatMap((stage, index) => {
    const here = proved.filter((proof) => proof.stage === stage);
    return [...new Set(here.map(({ organisation }) => organisation))].map((organisation) => {
      const own = here.filter((proof) => proof.organisation === organisation);
      const seen = new Map<string, number>();
      for (const [vantage, count] of own.flatMap((proof) => Object.entries(proof.seen))) {
        seen.set(vantage, (seen.get(vantage) ?? 0) + count);
      }
      const from = [...seen].map(([vantage, count]) => `${vantage} ${count}`).join(", ");
      return `  ${index + 1} ${stage.padEnd(13)} ${organisation}: ${own.map(({ condition }) => condition).join(", ")} (${from})`;
    });
  });
}

/** What nobody manages is never among what is closed. */
function unmanagedLines(unmanaged: RecordReport["unmanaged"]): string[] {
  if (unmanaged.length === 0) return [];
  const lines = STAGE_NAMES.flatMap((stage, index) => {
    const here = unmanaged.filter((one) => one.stage === stage);
    return [...new Set(here.map(({ organisation }) => organisation))].map((organisation) => {
      const own = here.filter((one) => one.organisation === organisation);
      return `  ${index + 1} ${stage.padEnd(13)} ${organisation}: ${own.map(({ condition }) => condition).join(", ")}`;
    });
  });
  return ["Unmanaged: nothing is known of", ...lines];
}

/** All of them, those of one stage and organisation in one paragraph. */
function attestedLines(attested: RecordReport["attested"]): string[] {
  const paragraphs = new Map<string, string[]>();
  for (const { organisation, stage, what } of attested) {
    const head = `${stage === null ? "" : `${STAGE_NAMES.indexOf(stage) + 1} ${stage} `}${organisation ?? "both"}: `;
    const known = paragraphs.get(head);
    if (known === undefined) paragraphs.set(head, [what]);
    else known.push(what);
  }
  return [...paragraphs].flatMap(([head, items]) => {
    const rest = items.length - PARAGRAPH_MAX;
    const shown = rest > 0 ? [...items.slice(0, PARAGRAPH_MAX), `${rest} more; see --json`] : items;
    return wrapped(
      head,
      shown.map((item, index) => (index < shown.length - 1 ? `${item}; ` : item)),
    );
  });
}

/** Items on lines of at most about `WIDTH` characters; a longer item has a line of its own. */
function wrapped(head: string, items: readonly string[]): string[] {
  const lines = [`  ${head}`];
  let isFirst = true;
  for (const item of items) {
    const line = lines.at(-1) ?? "";
    if (isFirst || line.length + item.trimEnd().length <= WIDTH) lines[lines.length - 1] = line + item;
    else lines.push(`    ${item}`);
    isFirst = false;
  }
  return lines.map((line) => line.trimEnd());
}

function cut(lines: readonly string[]): string[] {
  const shown = lines.slice(0, lines.length > LINES_MAX ? LINES_MAX - 1 : LINES_MAX);
  const rest = lines.length - shown.length;
  return [...shown, ...(rest > 0 ? [`and ${rest} more; see --json`] : [])].map((line) => `  ${line}`);
}

/** Problems by reason, in the order found. */
function problems({ problems: wrong, parts }: RecordReport): string[] {
  const places = new Map<ReasonCode, string[]>();
  for (const { reason, where, detail } of wrong) {
    const place = detail === undefined ? where : `${where} (${detail})`;
    const known = places.get(reason);
    if (known === undefined) places.set(reason, [place]);
    else known.push(place);
  }
  const lost = parts.filter(({ complete }) => !complete).map(({ part, title }) => `  ${part} ${title}`);
  return [
    ...[...places].flatMap(([reason, where]) => {
      const rest = where.length - PLACES_MAX;
      const shown = where.slice(0, PLACES_MAX).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
      const { sentence, hint } = REASONS[reason];
      return [`${reason}: ${sentence}`, `  at    ${shown}`, `  hint  ${hint}`];
    }),
    ...(lost.length > 0 ? ["", "Not complete:", ...lost] : []),
  ];
}
