// docs/reference/conditions.md: how each condition of a removal and of an agent's identity is evaluated, made from the table
// that the programs evaluate by, so that an auditor can repeat it by hand.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { PLANE_NAMES } from "../src/federation/plane-order.ts";
import type {
  Answer,
  Check,
  Condition,
  Observation,
  Requirement,
} from "../src/records/conditions/condition.ts";
import { conditionsOf } from "../src/records/conditions/condition-table.ts";
import { conditionsOfStage, ITEM_AGE_MAX_MS } from "../src/records/conditions/evaluate.ts";
import { PLANE_OF_STAGE, STAGE_NAMES } from "../src/records/format/removal-stages.ts";
import { ROOT } from "./run-program.ts";

const PAGE = join(ROOT, "docs", "reference", "conditions.md");

const HEAD = `# Conditions of the planes

This page is made from \`src/records/conditions\` by \`./task check --update\`. The operator's status, whoever signs or countersigns a stage, and \`drawbridge verify\` evaluate the same table; nothing that a signer says about a condition is read. A containment is evaluated by the same conditions without the rows that only an attempt of the counterparty's shows; a restore, a re-admission and the changes of one agent's identity (\`drawbridge agent\`) by those at the end of this page.

## How a condition is evaluated

1. Take the items that the stage names whose \`partner\` is the counterparty and whose \`plane\` is the stage's, observed between \`opened_at\` and \`closed_at\` and at most ${ITEM_AGE_MAX_MS / 60_000} minutes before \`closed_at\`. The data duties are about every plane, and their items may be older than that. Items of the vantage \`nobody\`, and items whose \`reason\` begins with \`not_configured:\` or \`not_applicable:\`, count for nothing.
2. If the scope's \`parts\` have none of the condition's parts, the condition is **unmanaged**. It is never counted as closed.
3. For each row of the condition's table and each subject of the row, look for an item with the probe, the vantage, the subject and one of the answers. \`closed\` alone shows nothing: verdict, layer, status and reason must all be as stated. "–" is an item without that field; "any" is whatever stands there.
4. An item with a probe of the condition, about a subject of the row, that has the opposite verdict makes the condition **not met**; in a row *by an attempt of the counterparty*, an item that says \`open\` does so whatever its subject. One with another answer makes it **unknown**. An attempt without an answer (\`unknown\`) does so as well, except in rows that say so, and for subjects that the stage lists as out of reach. Of a row that holds together with another one, the opposite verdict is allowed.
5. If every row has an item for each of its subjects, the condition is **met**. A row marked *optional* must agree where it was observed, and need not be observed. In a row marked *waivable*, a subject that the stage lists in \`out_of_reach\` may have an item with the row's own probe and vantage that says \`unknown\` instead. A room is *left open* where every \`reconciled\` item names the stage's \`revision\` and \`render\`, has the reason \`incomplete\`, and names rooms of which the stage lists each in \`out_of_reach\`: of a room that is named so, whatever the row's own probe and vantage found stands in the place of what is wanted, and so does \`reconciled\` itself in a row *waivable*. Nothing else is excused.
6. If there are no subjects, the condition is **not applicable** when the item of the row *absence* is there, and **unknown** when it is not.

In a record, an item that shows no condition of its stage is an error, unless it says \`open\` about something that the stage lists as out of reach; and every condition has to be met, not applicable or unmanaged.

Subjects: *kept* are the rooms of the scope; *rooms* are the rooms of the stage's scope and every room that an item \`room_…\` of the operator names; *agents* are the organisation's agents that the counterparty may invoke; *pins* are the counterparty's agents that the organisation's bridge carries; *client* is the counterparty's client ID; *clients* are that one and those with which it had applied (\`applicants\`); *caller* is the same where *agents* is not empty; *self* and *partner* are server names; *none* is an item without a subject; *any* is one item about anything.
`;

const OPENING = `# When a plane is open

A restore and a re-admission evaluate these conditions, from what the organisation observed at that time, with its own registry's \`revision\` and \`render\`. In a re-admission the scope's rooms are those that were closed to the partner and are kept; a restore names none, because a room goes back to what its state was. A re-admission also compares what was tried as the partner with the registry (\`from_outside\`).
`;

const CHECKS: Readonly<Record<Check, string>> = {
  names_revision: "its references name the stage's `revision` and `render`",
  nobody_present: "its references have `present=0`",
  another_policy: "its first digest is not the scope's `policy`",
  same_process: "its `started_at=` is the scope's `started_at`, unless that is null",
  current_pin: "its references name the fingerprint of the key that is pinned",
};

function list(values: readonly (string | number | null)[] | undefined): string {
  return values === undefined ? "any" : values.map((one) => (one === null ? "–" : `\`${one}\``)).join(" ");
}

function answerText({ verdict, layers, statuses, reasons }: Answer): string {
  return `\`${verdict}\` by ${list(layers)}, status ${list(statuses)}, reason ${list(reasons)}`;
}

function observationText({ probe, vantage, answers, checks = [], with: other }: Observation): string {
  const answer = answers.length === 0 ? "only as waived" : answers.map(answerText).join("; or ");
  const also = checks.map((check) => `; ${CHECKS[check]}`).join("");
  const together = other === undefined ? "" : `; together with ${observationText(other)}`;
  return `\`${probe}\` (${vantage}): ${answer}${also}${together}`;
}

function requirementRow({
  subjects,
  anyOf,
  optional,
  ignoresUnknown,
  waivable,
  byAttempt,
}: Requirement): string {
  const marks = [
    ...(optional ? ["optional"] : []),
    ...(ignoresUnknown ? ["attempts without an answer are ignored"] : []),
    ...(waivable ? ["waivable"] : []),
    ...(byAttempt ? ["by an attempt of the counterparty"] : []),
  ];
  return `| ${subjects} | ${anyOf.map(observationText).join("<br>or ")} | ${marks.join(", ")} |`;
}

function conditionText({ name, parts, requirements, absence, optional }: Condition): string {
  const note = optional === true ? " It is left out where nothing was observed of it." : "";
  const rows = requirements.map(requirementRow);
  if (absence !== undefined) {
    const instead = absence.instead === true ? "in the place of the rows above" : "where there is no subject";
    rows.push(`| *absence* | ${observationText(absence.observation)} | ${instead} |`);
  }
  return `### \`${name}\`

Part: ${parts.join(" or ")}.${note}

| subjects | one of these for each | |
|---|---|---|
${rows.join("\n")}
`;
}

function page(): string {
  const closing = STAGE_NAMES.map((stage, index) => {
    const plane = PLANE_OF_STAGE[stage];
    const title = plane === null ? "the data duties" : `the ${plane} plane is closed`;
    return `## Stage ${index + 1}, \`${stage}\`: ${title}\n\n${conditionsOfStage(stage).map(conditionText).join("\n")}`;
  });
  const opening = PLANE_NAMES.map(
    (plane, index) =>
      `## Plane ${index + 1}, ${plane}, is open\n\n${conditionsOf(plane, "open").map(conditionText).join("\n")}`,
  );
  const agent = (
    [
      ["pinned or rotated", "open", "card"],
      ["withdrawn, and ours", "closed", "gateway"],
      ["withdrawn, and the partner's", "closed", "card"],
    ] as const
  ).map(([title, direction, plane]) => {
    const conditions = conditionsOf(plane, direction, "agent").map(conditionText).join("\n");
    return `## An agent's identity is ${title}\n\n*pins* is the agent; the plane is ${plane}.\n\n${conditions}`;
  });
  return [HEAD, ...closing, OPENING, ...opening, ...agent].join("\n");
}

/** Compares the page with the table, or writes it. @returns what is wrong */
export function compareConditions(update: boolean): string[] {
  if (update) writeFileSync(PAGE, page());
  else if (!existsSync(PAGE) || readFileSync(PAGE, "utf8") !== page()) {
    return ["docs/reference/conditions.md is not what the table says; run ./task check --update"];
  }
  return [];
}
