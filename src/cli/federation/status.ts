// drawbridge federation status: who is contained and what is in force, from records alone.
import { type FederationStatus, federationStatus } from "../../federation/containment/federation-status.ts";
import { planeLabel } from "../../federation/plane-order.ts";
import { defineCommand, OPTION, print, renderRows, short, tableIfAny, withReason } from "../lib/command.ts";
import { openForCommand, planeWords } from "../lib/federation.ts";

export const statusCommand = defineCommand({
  options: [OPTION.federation, OPTION.json],
  help: `
Read from records alone; no server is asked. Exit code 5: a plane is behind the head, incomplete, deferred, held or failed.`,
  async run(_, options) {
    const federation = await openForCommand(options.config);
    const status = await federationStatus(federation);
    print(options, status, () => textOf(status));
    if (status.refused !== null) return "refused";
    const { head, planes } = status;
    const isCurrent = ({ outcome, revision }: FederationStatus["planes"][number]) =>
      outcome === "unmanaged" || (outcome === "in_force" && revision === head);
    return planes.every(isCurrent) ? "ok" : "incomplete";
  },
});

function textOf({ head, accepted, refused, contained, removed, planes, drift }: FederationStatus): string {
  const [oldest] = planes.flatMap(({ checkedAt }) => checkedAt ?? []).sort();
  const never = planes.filter(({ outcome }) => outcome === "never").map(({ plane }) => planeWords(plane));
  return [
    `head      ${short(head)}\naccepted  ${short(accepted)}\n`,
    refused === null ? "" : `REFUSED: ${refused.detail} [${refused.reason}]\nhint: ${refused.hint}\n`,
    contained.length === 0 ? "No partner is contained.\n" : "",
    tableIfAny(
      ["CONTAINED", "SERVER", "DECLARED CLOSED"],
      contained.map((one) => [one.name, one.serverName, one.declaredClosed.join(", ")]),
    ),
    tableIfAny(
      ["NOT ADMITTED", "SERVER"],
      removed.map((one) => [one.name, one.serverName]),
    ),
    renderRows(planes, {
      PLANE: (one) => planeLabel(one.plane),
      REVISION: (one) => short(one.revision),
      DIGEST: (one) => short(one.digest),
      TIME: (one) => one.at ?? "-",
      OUTCOME: (one) => (one.outcome === "never" ? "never applied" : withReason(one.outcome, one.reason)),
      DRIFT: (one) => (one.outcome === "unmanaged" ? "-" : String(one.drift ?? "not checked")),
      "NEXT TRY": (one) => one.retryAt ?? "-",
    }),
    oldest === undefined
      ? ""
      : `From records; drift was looked for last at ${oldest}, or later. No server was asked now.\n`,
    never.length === 0
      ? ""
      : `Never applied: ${never.join(", ")}. What is in force there was not put there by this deployment, and is not known here.\n` +
        "hint: drawbridge reconcile --once applies all planes; contain and restore apply 5, 4, 2 and 3 alone.\n",
    tableIfAny(
      ["NOT REACHED", "PARTNER", "WHAT", "WHY", "HINT"],
      planes.flatMap(({ plane, outOfReach }) =>
        outOfReach.map((one) => [planeLabel(plane), one.partner, one.subject, one.reason, one.hint]),
      ),
    ),
    tableIfAny(
      ["DRIFT PUT RIGHT", "PLANE", "WHAT", "KIND", "KEPT TEXT"],
      drift.map((one) => [one.at, planeLabel(one.plane), one.subject, one.kind, one.kept ?? "-"]),
    ),
  ]
    .filter((section) => section !== "")
    .join("\n");
}
