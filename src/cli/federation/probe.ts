// drawbridge federation probe: is a partner as the registry says, from inside and from outside?
import process from "node:process";
import type { Command } from "commander";
import { DrawbridgeError } from "../../domain/errors.ts";
import { CLOSING_ORDER, PLANE_NAMES, PLANE_NUMBERS, type PlaneName } from "../../federation/plane-order.ts";
import { judge } from "../../federation/probes/judge.ts";
import { PROBE_HEADER, probeRows, probeSummary } from "../../federation/probes/report.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
import { lookAt } from "../lib/federation-look.ts";
import { CONFIG_OPTION } from "../lib/federation-options.ts";
import { renderJson, renderTable } from "../lib/output.ts";

interface Options {
  readonly config: string;
  readonly plane?: string;
  readonly probeConfig?: string;
  readonly json?: boolean;
}

/** Planes by name or number; all of them, in closing order, when none is named. */
function planesOf(named: string | undefined): readonly PlaneName[] {
  if (named === undefined) return CLOSING_ORDER;
  const plane = PLANE_NAMES.find((name) => name === named || String(PLANE_NUMBERS[name]) === named);
  if (plane !== undefined) return [plane];
  throw new DrawbridgeError("usage", `${JSON.stringify(named)} is no plane`, {
    hint: `Name one of ${PLANE_NAMES.map((name) => `${PLANE_NUMBERS[name]} ${name}`).join(", ")}.`,
  });
}

async function run(name: string, options: Options): Promise<void> {
  const planes = planesOf(options.plane);
  const { current, partner, inside, outside } = await lookAt(name, { ...options, planes });
  const judgement = judge([...inside, ...outside], current.desired, partner, planes);
  if (options.json === true) {
    process.stdout.write(
      renderJson({
        partner: { name: partner.name, serverName: partner.partner.serverName },
        revision: current.desired.revision,
        holds: judgement.holds,
        unproven: judgement.unproven,
        items: judgement.items,
      }),
    );
  } else {
    process.stdout.write(renderTable(PROBE_HEADER, probeRows(judgement)));
    process.stdout.write(`\n${probeSummary(judgement, partner)}`);
  }
  process.exitCode = judgement.holds ? ExitCode.ok : ExitCode.failed;
}

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<partner>", "server name, or name of the registry file")
      .option(...CONFIG_OPTION)
      .option("--plane <plane>", "only this plane, by name or number")
      .option("--probe-config <file>", "a probe.yaml: look from outside as well, as the partner")
      .option("--json", "print JSON")
      .addHelpText(
        "after",
        `
Asks the operator's own parts, and with --probe-config tries from outside what the partner could try. Every attempt is a
content-free evidence item; what it sends into a room is a notice that names itself a probe.
  ok     as the registry says     WRONG  the opposite was found     ?  nothing can be said
  -      open, and nobody is in that room

Exit codes:
  0  everything that was tried is as the registry says, and every closed plane was shown closed
  1  something was found otherwise, could not be told, or a closed plane was not shown closed
  2  unknown partner, or a configuration that is wrong; nothing was tried`,
      )
      .action(run);
  },
};
