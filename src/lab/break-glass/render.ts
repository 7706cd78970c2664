// What was watched while the glass was broken, for people. Pure.
import { renderTable } from "../../cli/output.ts";
import { PLANE_NUMBERS } from "../../federation/planes/names.ts";
import type { Observed, Timed } from "./watch.ts";

export function renderWatched(act: "contain" | "restore", observed: readonly Observed[]): string {
  const rows = observed
    .toSorted((one, other) => PLANE_NUMBERS[other.plane] - PLANE_NUMBERS[one.plane])
    .map((one) => [
      `${PLANE_NUMBERS[one.plane]} ${one.plane}`,
      one.kind,
      after(act === "contain" ? one.firstRefusal : one.firstPass),
      after(act === "contain" ? one.lastPass : one.lastRefusal),
      answer(act === "contain" ? one.firstRefusal : one.firstPass),
      String(one.passed),
      String(one.refused),
    ]);
  const header =
    act === "contain"
      ? ["PLANE", "TRIED AS THE PARTNER", "FIRST REFUSED", "LAST LET IN", "REFUSED BY", "LET IN", "REFUSED"]
      : ["PLANE", "TRIED AS THE PARTNER", "FIRST LET IN", "LAST REFUSED", "ANSWERED BY", "LET IN", "REFUSED"];
  return renderTable(header, rows);
}

/** Since the decision. */
function after(timed: Timed | null): string {
  return timed === null ? "-" : `${(timed.afterMs / 1_000).toFixed(2)} s`;
}

function answer(timed: Timed | null): string {
  if (timed === null) return "-";
  return [timed.layer, timed.status, timed.reason].filter((part) => part !== null).join(" ");
}
