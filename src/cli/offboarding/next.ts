// drawbridge offboarding next: does the next thing that is this organisation's to do.
import process from "node:process";
import type { Command } from "commander";
import { type NextResult, next } from "../../federation/offboarding/workflow/next.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
import { CONFIG_OPTION, planeLabel, short } from "../lib/federation-options.ts";
import {
  blockLines,
  JSON_OPTION,
  nextLine,
  openOffboarding,
  PROBE_OPTION,
  RUN_ID_OPTION,
  type RunOptions,
  statusNow,
} from "../lib/offboarding-options.ts";
import {
  requireSigning,
  type Signed,
  type SigningOptions,
  sayFailure,
  signedLines,
  signToo,
  withSigningOptions,
} from "../lib/offboarding-signing.ts";
import { renderJson } from "../lib/output.ts";

interface Options extends RunOptions, SigningOptions {
  readonly skipCountersignature?: string;
}

export const command: CommandModule = {
  register(program: Command): void {
    withSigningOptions(
      program
        .option(...CONFIG_OPTION)
        .option(...RUN_ID_OPTION)
        .option(...PROBE_OPTION)
        .option(
          "--skip-countersignature <reason>",
          "open the next stage before both have signed the one before it; a word",
        ),
    )
      .option(...JSON_OPTION)
      .addHelpText(
        "after",
        `
Closes the stage whose turn it is (one commit), brings its plane to the head, and looks whether the exit
conditions hold. Run it again after anything: what is done is found, and not done twice. An emergency closes
planes 5, 4, 2 and 3 at once first. With --sign, what is shown closed is signed as well, and what was imported is
countersigned.

Exit codes:
  0  the stage is shown closed, or it is not this organisation's turn (and what is waited for is said)
  2  with --sign: the signing key cannot be used; nothing was done
  4  the head is refused
  5  an exit condition does not hold yet, and is named with its probe, what it got and what to do; or, with --sign,
     it was shown and could not be signed, and why`,
      )
      .action(async (options: Options) => {
        const context = await openOffboarding(options);
        requireSigning(context, options);
        const result = await next(context, { run: options.runId, ahead: options.skipCountersignature });
        const isOpen = result.did === "not_proved" || result.planes.some(({ done }) => !done);
        const signed = await signToo(context, result, isOpen ? {} : options);
        const status = statusNow(context, result.run.run);
        const lines = [
          ...textOf(result, status),
          ...signedLines(result.run, signed),
          ...(isKeptBack(result, signed, options) ? [KEPT_BACK] : []),
          nextLine(status, options),
        ];
        if (options.json === true) process.stdout.write(renderJson(jsonOf(result, signed, status)));
        else process.stdout.write(`${lines.join("\n")}\n`);
        process.exitCode = sayFailure(signed) || isOpen ? ExitCode.incomplete : ExitCode.ok;
      });
  },
};

const KEPT_BACK = "NOT SIGNED YET: a stage before it is not signed; it is signed together with that one.";

/** Of a stage that was opened ahead. */
function isKeptBack({ did }: NextResult, { signed, failure }: Signed, { sign }: SigningOptions): boolean {
  return sign === true && did === "proved" && signed.length === 0 && failure === undefined;
}

function jsonOf(
  { did, stage, record, planes }: NextResult,
  { signed, countersigned, recordFile }: Signed,
  status: ReturnType<typeof statusNow>,
) {
  return {
    did,
    stage,
    commit: record?.commit ?? null,
    conditions: record?.proof?.conditions ?? [],
    outOfReach: record?.proof?.outOfReach ?? [],
    planes,
    signed,
    countersigned,
    recordFile,
    status,
  };
}

function textOf(
  { did, stage, record, planes }: NextResult,
  status: ReturnType<typeof statusNow>,
): readonly string[] {
  if (did === "contained") {
    return planes.map(({ plane, done, reason }) => {
      const state = done ? "closed" : `NOT CLOSED YET (${reason ?? "not applied"})`;
      return `plane ${planeLabel(plane)}: ${state}`;
    });
  }
  if (did === "idle" || stage === null) return [];
  const commit = record?.commit === null ? "" : `, commit ${short(record?.commit)}`;
  const conditions = record?.proof?.conditions ?? [];
  if (did === "proved") {
    return [
      `${stage}: closed, and shown${commit}`,
      ...conditions.map(
        ({ condition, verdict, evidence }) => `  ${condition}: ${verdict} (${evidence.length} observed)`,
      ),
    ];
  }
  const blocks = status.stages.find((one) => one.stage === stage)?.blocks ?? [];
  return [`${stage}: NOT SHOWN CLOSED YET${commit}`, ...blockLines(blocks)];
}
