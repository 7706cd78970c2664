// drawbridge federation report-abuse: takes in what another organisation reports, by references alone.
import { dirname, join, resolve } from "node:path";
import { DrawbridgeError } from "../../domain/errors.ts";
import { shellWord } from "../../domain/printable.ts";
import { fileReport } from "../../federation/abuse/file-report.ts";
import { type AbuseReport, readReport } from "../../federation/abuse/report.ts";
import { changeBase } from "../../federation/change/base.ts";
import { currentState } from "../../federation/reconcile/accept-head.ts";
import type { Federation } from "../../federation/reconcile/context.ts";
import { findPartner } from "../../federation/registry/find-partner.ts";
import type { PartnerEntry, Registry } from "../../federation/registry/partner.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { openForCommand } from "../lib/federation.ts";
import { readInput } from "../lib/input.ts";
import { CONFIG } from "../lib/options.ts";
import { printText, say, short } from "../lib/output.ts";
import { runCommand } from "../lib/run-command.ts";

export const command = defineCommand({
  arguments: [["<file>", "the report: JSON by registry/abuse-report.schema.json"]],
  options: [
    CONFIG.federation,
    ["--apply", "when containment is asked for: contain the subject, and make an evidence pack"],
  ],
  help: `
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
  async run([file], { config, apply }) {
    const given = readReport(readInput(file, { hint: "Check the path." }));
    if (given.problems !== undefined) {
      const problems = given.problems.map((problem) => `${file}: ${problem}`);
      throw new DrawbridgeError("config_invalid", problems.join("\n"), {
        hint: "Ask the reporter for one by registry/abuse-report.schema.json; nothing was filed.",
      });
    }
    const { report, digest } = given;
    const { federation } = await openForCommand(config);
    const filing = { report, digest, federation };
    const commands = (registry: Registry) =>
      commandsFor(findPartner(registry, report.subject.server_name), config);
    if (apply === true && report.requested_action === "contain") {
      // Found as containment finds it: a head that is refused does not keep the partner open.
      const { registry } = await changeBase(federation, "workaround");
      return containFirst(filing, commands(registry));
    }
    const { desired } = await currentState(federation);
    const words = commands(desired.registry);
    await fileAndPrint(filing);
    if (report.requested_action !== "contain") return ExitCode.ok;
    say("The reporter asks for containment. Repeat with --apply, or give the commands yourself:");
    for (const word of Object.values(words)) say(`  drawbridge federation ${word.map(shellWord).join(" ")}`);
    return ExitCode.ok;
  },
});

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
  const folder = join(dirname(resolve(config)), "evidence");
  return {
    contain: ["contain", name, "--config", config, "--apply"],
    evidence: ["evidence", name, "--config", config, "--since", "24h", "--output", folder],
  };
}

/**
 * Contains, then files, then makes a pack of it; each whatever became of the one before. What is filed is built on
 * a head that is good: containment has put one there where it had to.
 * @throws what filing throws, at the end
 */
async function containFirst(filing: Filing, { contain, evidence }: Commands): Promise<ExitCode> {
  const codes = [await runCommand(["federation", ...contain])];
  const [filed] = await Promise.allSettled([fileAndPrint(filing)]);
  codes.push(await runCommand(["federation", ...evidence]));
  if (filed.status === "rejected") throw filed.reason;
  return (codes.find((code) => code !== ExitCode.ok) ?? ExitCode.ok) as ExitCode;
}

/** Files the report, and prints the one line that is logged of it. */
async function fileAndPrint({ report, digest, federation }: Filing): Promise<void> {
  const filed = await fileReport(report, digest, federation);
  const { reporter, subject, category, severity, requested_action, evidence_refs } = report;
  const line = {
    event: "abuse_report",
    ...{ digest, reporter: reporter.server_name, subject: subject.server_name },
    ...{ category, severity, requested_action, evidence_refs },
  };
  printText(`${JSON.stringify(line)}\n`);
  say(
    filed.isNew
      ? `Filed: ${filed.path} in commit ${short(filed.revision)}`
      : `Filed before: ${filed.path}; nothing was added.`,
  );
}
