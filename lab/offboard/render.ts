// The summary of a removal, for people. Pure.
import { renderTable } from "../../src/cli/lib/command.ts";
import { shellWord } from "../../src/domain/printable.ts";
import { CONTAINMENT_ORDER, PLANE_NUMBERS } from "../../src/federation/plane-order.ts";
import {
  PLANE_OF_STAGE,
  positionOf,
  STAGE_NAMES,
  type StageName,
} from "../../src/records/format/removal-stages.ts";
import { isShut, type Observed } from "../observe/attempt-watch.ts";
import { THEMSELVES } from "../observe/bystanders.ts";
import { formatDuration, type Palette } from "../progress.ts";
import type { ObservedStage, Offboarded } from "./offboard.ts";
import type { Signer } from "./record.ts";

export function renderOffboarded(result: Offboarded, palette: Palette): string {
  const { bold, dim, green, red } = palette;
  const { remover, partner, run, kind, decidedAt, completedAt, stages, record, verified, waived, holds } =
    result;
  const tick = (isGood: boolean) => (isGood ? green("✓") : red("✗"));
  return [
    "",
    bold(`${remover} has removed ${partner}: all five planes closed, on both sides, signed by both.`),
    dim(`${kind}, run ${run}; ${formatDuration(completedAt - decidedAt)} from the start to the record`),
    "",
    ...result.contained.map(
      ({ organisation, afterMs }) =>
        `${organisation} had planes 5, 4, 2 and 3 closed ${formatDuration(afterMs)} after the start.`,
    ),
    bold("The stages, from the record"),
    stageTable(stages),
    bold(`Attempts of ${partner} at ${remover}`),
    attemptTable(result.attempts),
    bold("Bystanders and programs"),
    ...result.neighbours.map(
      ({ organisation, with: other, messages, lost, longestMs, medianMs }) =>
        `  ${tick(lost === 0)} ${peopleOf(organisation, other)}: ${messages} messages, ${
          lost === 0 ? "none lost" : `${lost} LOST`
        }; half within ${formatDuration(medianMs)}, the slowest ${formatDuration(longestMs)}`,
    ),
    ...Object.entries(result.programs).map(
      ([name, { restarted }]) =>
        `  ${tick(restarted.every((one) => one === "homeserver"))} restarted at ${name}: ${restarted.join(", ") || "nothing"}`,
    ),
    "",
    bold("The record"),
    `  ${record.file}`,
    ...record.signers.map(
      ({ name, keyId, publicKeyFile }) =>
        `  signed by ${name}, key ${keyId.slice(0, 16)}… ${dim(publicKeyFile)}`,
    ),
    `  ${tick(verified.drawbridge)} drawbridge verify`,
    `  ${tick(verified.foreign)} Python securesystemslib, which knows nothing of Drawbridge:`,
    ...withoutKeys(verified.foreignSaid, record.signers).map((line) => dim(`      ${line}`)),
    "",
    ...(waived.length === 0
      ? []
      : [
          bold("Waived: out of an operator's reach, accepted by a role"),
          ...waived.map(
            ({ organisation, subject, found, by: role, reason }) =>
              `  ${organisation}: ${subject}${found === subject ? "" : ` (${found})`}, by ${role}: ${reason}`,
          ),
          "",
        ]),
    holds ? green("The removal is complete and verified.") : red("The removal does not hold; see above."),
    "",
    bold("Next"),
    `  bin/drawbridge verify ${shellWord(record.file)} --trust ${shellWord(record.trustFile)}`,
    `  ./task fed:readmit   ${dim(`readmits ${partner}, as a new partner`)}`,
    `  ./task fed:down --purge   ${dim("ends the lab and deletes this record: copy it before")}`,
    "",
  ].join("\n");
}

function peopleOf(organisation: string, other: string): string {
  return other === THEMSELVES ? `people of ${organisation} among themselves` : `${organisation} and ${other}`;
}

/** The verifier's output without the keys, which stand beside their holders above; equal lines once. */
function withoutKeys(said: string, signers: readonly Signer[]): readonly string[] {
  const known = signers.map(({ keyId }) => `; key ${keyId}`);
  const lines = said.split("\n").map((line) => {
    const key = known.find((ending) => line.endsWith(ending));
    return key === undefined ? line : line.slice(0, -key.length);
  });
  return [...new Set(lines)];
}

function stageTable(stages: readonly ObservedStage[]): string {
  const rows = stages.map(({ organisation, stage, closedAfterMs, openedAt, closedAt, interruptionMs }) => [
    `  ${titleOf(stage)}`,
    organisation,
    formatDuration(closedAfterMs),
    formatDuration(closedAt - openedAt),
    interruptionMs === null ? "-" : formatDuration(interruptionMs),
  ]);
  return renderTable(["  STAGE", "AT", "CLOSED AFTER", "TOOK", "LONGEST MESSAGE OF A BYSTANDER"], rows);
}

function titleOf(stage: string): string {
  const name = STAGE_NAMES.find((one) => one === stage) as StageName;
  const plane = PLANE_OF_STAGE[name];
  return `${positionOf(name)} ${name}${plane === null ? "" : `, plane ${PLANE_NUMBERS[plane]} ${plane}`}`;
}

function attemptTable(attempts: readonly Observed[]): string {
  const order = [...CONTAINMENT_ORDER, "transport"];
  const rows = attempts
    .toSorted((one, other) => order.indexOf(one.plane ?? "") - order.indexOf(other.plane ?? ""))
    .map((one) => [
      `  ${isShut(one) ? "closed" : "OPEN"}`,
      one.kind,
      after(one.firstRefusal),
      after(one.lastPass),
      by(one.firstRefusal),
      String(one.passed),
      String(one.refused),
    ]);
  return renderTable(
    ["  ", "TRIED", "FIRST REFUSED", "LAST LET IN", "FIRST REFUSED BY", "LET IN", "REFUSED"],
    rows,
  );
}

function after(timed: { readonly afterMs: number } | null): string {
  return timed === null ? "-" : formatDuration(timed.afterMs);
}

function by(timed: Observed["firstRefusal"]): string {
  if (timed === null) return "-";
  return [timed.layer, timed.status, timed.reason].filter((part) => part !== null).join(" ");
}
