// drawbridge federation report-abuse: takes in what another organisation reports, by references alone.
import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import process from "node:process";
import type { Command } from "commander";
import { DrawbridgeError } from "../../domain/errors.ts";
import { fileReport } from "../../federation/abuse/file-report.ts";
import { type AbuseReport, readReport } from "../../federation/abuse/report.ts";
import { containmentBase } from "../../federation/containment/base.ts";
import { currentState } from "../../federation/reconcile/assess.ts";
import type { Federation } from "../../federation/reconcile/context.ts";
import { findPartner } from "../../federation/registry/find-partner.ts";
import type { PartnerEntry, Registry } from "../../federation/registry/partner.ts";
import { callOwn } from "../lib/call-own.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
import { CONFIG_OPTION, openForCommand, say, shellWord, short } from "../lib/federation-options.ts";

interface Options {
  readonly config: string;
  readonly apply?: boolean;
}

function read(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    throw new DrawbridgeError("config_unreadable", `cannot read ${file}: ${code}`, {
      hint: "Check the path.",
      cause,
    });
  }
}

async function run(file: string, options: Options): Promise<void> {
  const given = readReport(read(file));
  if (given.problems !== undefined) {
    throw new DrawbridgeError(
      "config_invalid",
      given.problems.map((problem) => `${file}: ${problem}`).join("\n"),
      {
        hint: "Ask the reporter for one by registry/abuse-report.schema.json; nothing was filed.",
      },
    );
  }
  const { report, digest } = given;
  const { federation } = await openForCommand(options.config);
  const filing = { report, digest, federation };
  const commands = (registry: Registry) =>
    commandsFor(findPartner(registry, report.subject.server_name), options.config);
  if (options.apply === true && report.requested_action === "contain") {
    // Found as containment finds it: a head that is refused does not keep the partner open.
    const { registry } = await containmentBase(federation, true);
    return containFirst(filing, commands(registry));
  }
  const { desired } = await currentState(federation);
  const words = commands(desired.registry);
  await fileAndTell(filing);
  if (report.requested_action !== "contain") return;
  say("The reporter asks for containment. Repeat with --apply, or give the commands yourself:");
  for (const word of Object.values(words)) say(`  drawbridge federation ${word.map(shellWord).join(" ")}`);
}

interface Filing {
  readonly report: AbuseReport;
  readonly digest: string;
  readonly federation: Federation;
}

interface Commands {
  readonly contain: readonly string[];
  readonly evidence: readonly string[];
}

function commandsFor({ name }: PartnerEntry, config: string): Commands {
  return {
    contain: ["contain", name, "--config", config, "--apply"],
    evidence: [
      ...["evidence", name, "--config", config, "--since", "24h"],
      ...["--output", evidenceFolder(config)],
    ],
  };
}

/**
 * Contains, then files, then makes a pack of it; each whatever became of the one before. What is filed is built on
 * a head that is good: containment has put one there where it had to.
 * @throws what filing throws, at the end
 */
async function containFirst(filing: Filing, { contain, evidence }: Commands): Promise<void> {
  const codes = [await callOwn(["federation", ...contain])];
  const [filed] = await Promise.allSettled([fileAndTell(filing)]);
  codes.push(await callOwn(["federation", ...evidence]));
  const worst = codes.find((code) => code !== ExitCode.ok);
  if (worst !== undefined) process.exitCode = worst;
  if (filed.status === "rejected") throw filed.reason;
}

async function fileAndTell({ report, digest, federation }: Filing): Promise<void> {
  const filed = await fileReport(report, digest, federation);
  const { reporter, subject, category, severity, requested_action, evidence_refs } = report;
  const line = {
    event: "abuse_report",
    ...{ digest, reporter: reporter.server_name, subject: subject.server_name },
    ...{ category, severity, requested_action, evidence_refs },
  };
  process.stdout.write(`${JSON.stringify(line)}\n`);
  say(
    filed.isNew
      ? `Filed: ${filed.path} in commit ${short(filed.revision)}`
      : `Filed before: ${filed.path}; nothing was added.`,
  );
}

function evidenceFolder(config: string): string {
  return join(dirname(resolve(config)), "evidence");
}

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<file>", "the report: JSON by registry/abuse-report.schema.json")
      .option(...CONFIG_OPTION)
      .option("--apply", "when containment is asked for: contain the subject, and make an evidence pack")
      .addHelpText(
        "after",
        `
A report refers to events, policies and keys, and quotes nothing; one that does is refused. It is kept in the
repository below records/abuse, once however often it comes. The line that is printed is all that is logged.
With --apply a report that asks for containment is acted on first, also where the head is refused: the subject is
contained, then the report is filed, then the pack is made, each whatever becomes of the one before.

Exit codes:
  0  filed, or filed before; with --apply: and contained, with a pack below evidence/ beside the configuration
  1  with --apply: one of the two commands could not be started, or was ended, and is named; the others are done
  2  the report, its subject or a configuration is wrong; nothing was filed
  4  the head is refused
  5  with --apply: something is not closed yet, and is named; the pack is made all the same`,
      )
      .action(run);
  },
};
