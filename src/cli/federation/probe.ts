// drawbridge federation probe: probes a partner from inside and from outside.
import { CLOSING_ORDER, PLANE_NAMES } from "../../federation/plane-order.ts";
import { judge, PROBE_HEADER, probeRows, probeSummary } from "../../federation/probes/report.ts";
import { defineCommand, OPTION, PARTNER, print, renderTable } from "../lib/command.ts";
import { probePartner } from "../lib/federation.ts";

const PLANE = ["--plane <name>", "only this plane", { choices: PLANE_NAMES }] as const;

export const probeCommand = defineCommand({
  arguments: [PARTNER],
  options: [OPTION.federation, PLANE, OPTION.probe, OPTION.json],
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
    const table = () => renderTable(PROBE_HEADER, probeRows(judgement));
    print(options, json, () => `${table()}\n${probeSummary(judgement, partner)}`);
    return holds ? "ok" : "failed";
  },
});
