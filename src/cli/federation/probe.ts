// drawbridge federation probe: is a partner as the registry says, from inside and from outside?
import { DrawbridgeError } from "../../domain/errors.ts";
import {
  CLOSING_ORDER,
  PLANE_NAMES,
  PLANE_NUMBERS,
  type PlaneName,
  planeLabel,
} from "../../federation/plane-order.ts";
import { judge } from "../../federation/probes/expected-results.ts";
import { PROBE_HEADER, probeRows, probeSummary } from "../../federation/probes/report.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { probePartner } from "../lib/federation.ts";
import { CONFIG, JSON_OPTION, PARTNER, PROBE_CONFIG } from "../lib/options.ts";
import { print, renderTable } from "../lib/output.ts";

/** Planes by name or number; all of them, in closing order, when none is named. */
function planesOf(named: string | undefined): readonly PlaneName[] {
  if (named === undefined) return CLOSING_ORDER;
  const plane = PLANE_NAMES.find((name) => name === named || String(PLANE_NUMBERS[name]) === named);
  if (plane !== undefined) return [plane];
  throw new DrawbridgeError("usage", `${JSON.stringify(named)} is no plane`, {
    hint: `Name one of ${PLANE_NAMES.map(planeLabel).join(", ")}.`,
  });
}

export const command = defineCommand({
  arguments: [PARTNER],
  options: [
    CONFIG.federation,
    ["--plane <plane>", "only this plane, by name or number"],
    PROBE_CONFIG,
    JSON_OPTION,
  ],
  help: `
Asks the operator's own parts, and with --probe-config tries from outside what the partner could try. Every attempt
is a content-free evidence item; what it sends into a room is a notice that names itself a probe.
  ok     as the registry says     WRONG  the opposite was found     ?  nothing can be said
  -      open, and nobody is in that room

Exit codes:
  0  everything that was tried is as the registry says, and every closed plane was shown closed
  1  something was found otherwise, could not be decided, or a closed plane was not shown closed
  2  unknown partner, or a configuration that is wrong; nothing was tried`,
  async run([name], options) {
    const planes = planesOf(options.plane);
    const { current, partner, inside, outside } = await probePartner(name, { ...options, planes });
    const judgement = judge([...inside, ...outside], current.desired, partner, planes);
    const { holds, unproven, items } = judgement;
    const json = {
      partner: { name: partner.name, serverName: partner.partner.serverName },
      revision: current.desired.revision,
      ...{ holds, unproven, items },
    };
    print(
      options,
      json,
      () => `${renderTable(PROBE_HEADER, probeRows(judgement))}\n${probeSummary(judgement, partner)}`,
    );
    return holds ? ExitCode.ok : ExitCode.failed;
  },
});
