// drawbridge federation report-abuse: files a report, and where that is confirmed contains its subject.
import { dirname, join, resolve } from "node:path";
import { systemClock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { parseServerName } from "../../domain/identifiers.ts";
import { shellWord } from "../../domain/printable.ts";
import type { AbuseReport, Origin } from "../../federation/abuse/report.ts";
import { fileReport, readSignedReport, signReport, wasRestoredSince } from "../../federation/abuse/report.ts";
import { changeBase } from "../../federation/change/change-base.ts";
import { loadFederationConfig } from "../../federation/config.ts";
import { signerOf, trustOf } from "../../federation/offboarding/run/context.ts";
import { acceptedState } from "../../federation/reconcile/accept-head.ts";
import type { Federation } from "../../federation/reconcile/context.ts";
import { findPartner, isRemoved, partnerEntry, type Registry } from "../../federation/registry/partner.ts";
import type { Revision } from "../../federation/repository/repository.ts";
import { CLOCK_SKEW_MS } from "../../records/format/fields.ts";
import { readInput } from "../../runtime/read-input.ts";
import { defineCommand, endWith, OPTION, parser, printData, printText, say, short } from "../lib/command.ts";
import { openForCommand } from "../lib/federation.ts";
import { performAndPrint } from "./contain-or-restore.ts";
import { writePack } from "./evidence.ts";

const ADDRESSEE = { parse: parser("server name", parseServerName) } as const;

export const reportAbuseCommand = defineCommand({
  arguments: [["<file>", "the report: JSON by registry/abuse-report.schema.json, or a DSSE envelope of one"]],
  options: [
    OPTION.federation,
    ["--apply", "when containment is asked for: contain the subject, and make an evidence pack"],
    [
      "--sign <organisation>",
      "sign the file as this organisation's own report to that one (a server name) and print the DSSE envelope",
      ADDRESSEE,
    ],
  ],
  help: `
A report refers to events, policies and keys, and quotes nothing; one that does is refused. It is kept in the
repository below records/abuse, once however often it comes. The line that is printed is all that is logged.
With --apply a report that asks for containment is acted on first, also where the head is refused: the subject is
contained, then the report is filed, then the pack is made below evidence/ beside the configuration, each whatever becomes of the one before. It must be in a
DSSE envelope that is signed by the reporter's key in \`offboarding.trustFile\` and was sent to this organisation within
the last week, the reporter must be a partner that is neither contained nor removed, or this organisation itself, and
the subject must be named by its server name, and not have been restored or re-admitted since it was sent or first filed. Otherwise nothing is done; file it without --apply.`,
  async run([file], { config, apply, sign }) {
    const bytes = readInput(file, "Check the path.");
    const settings = loadFederationConfig(config);
    const trusted = settings.offboarding === undefined ? [] : trustOf(settings).parties;
    const { read: given, origin } = readSignedReport(bytes, trusted);
    if (given.problems !== undefined) {
      const problems = given.problems.map((problem) => `${file}: ${problem}`);
      throw new DrawbridgeError("config_invalid", problems.join("\n"), {
        hint: "Ask the reporter for one by registry/abuse-report.schema.json; nothing was filed.",
      });
    }
    if (sign !== undefined) {
      const signer = signerOf(settings);
      const reporter = given.report.reporter.server_name;
      const own = trusted.find(({ keys }) => keys.some(({ keyId }) => keyId === signer.keyId))?.organisation;
      if (own !== reporter) {
        throw new DrawbridgeError("usage", `${reporter} is named as the reporter, and this is not its key`, {
          hint: "Each organisation signs its own reports; name this one under `reporter`, as `offboarding.trustFile` does.",
        });
      }
      printData(await signReport(given.report, sign, systemClock.now(), signer));
      return "ok";
    }
    const { report, digest } = given;
    const federation = await openForCommand(config);
    const filing = { report, digest, origin, federation };
    const subjectIn = (registry: Registry) => findPartner(registry, report.subject.server_name);
    if (apply === true && report.requested_action === "contain") {
      // Found as containment finds it: a head that is refused does not keep the partner open.
      const { registry, tree } = await changeBase(federation, "workaround", report.subject.server_name);
      const { name } = subjectIn(registry);
      await refuseUnlessAuthentic(filing, registry, tree);
      return containFirst(filing, name, config);
    }
    const { desired } = await acceptedState(federation);
    const { name } = subjectIn(desired.registry);
    await fileAndPrint(filing);
    if (report.requested_action !== "contain") return "ok";
    const doubt = whyNotAuthentic(filing, desired.registry);
    say(
      doubt === undefined
        ? "The reporter asks for containment. Repeat with --apply, or give the commands yourself:"
        : `The report asks for containment, and ${doubt}: ask the reporter by another way. If it is true:`,
    );
    const subject = `${shellWord(name)} --config ${shellWord(config)}`;
    const folder = shellWord(evidenceFolder(config));
    say(`  drawbridge federation contain ${subject} --apply`);
    say(`  drawbridge federation evidence ${subject} --since 24h --output ${folder}`);
    return "ok";
  },
});

/** Only a partner in good standing may have somebody contained, and only by its own signature, for us and for now. */
async function refuseUnlessAuthentic(filing: Filing, registry: Registry, revision: Revision): Promise<void> {
  const { report, digest, origin, federation } = filing;
  const why = whyNotAuthentic(filing, registry);
  if (!origin.signed || why !== undefined) {
    throw new DrawbridgeError("record_refused", `the report contains nobody: ${why}; nothing was done`, {
      hint: "Ask the reporter by another way; file the report without --apply, and contain with drawbridge federation contain.",
    });
  }
  // What was decided about a report stands: whoever hands it over again, long after, has nobody contained by it.
  if (!(await wasRestoredSince(report, digest, origin.sentAt, federation.repository, revision))) return;
  throw new DrawbridgeError(
    "record_refused",
    "the report contains nobody: its subject was restored or re-admitted after it was sent or filed; nothing was done",
    { hint: "Ask the reporter for another one; or contain with drawbridge federation contain." },
  );
}

const SENT_WITHIN_MS = 7 * 24 * 3_600_000;

function whyNotAuthentic({ report, origin, federation }: Filing, registry: Registry): string | undefined {
  if (!origin.signed) return origin.why;
  const own = registry.organisation.serverName;
  if (origin.to !== own) return `it was sent to ${origin.to}`;
  const ageMs = federation.clock.now() - Date.parse(origin.sentAt);
  if (ageMs < -CLOCK_SKEW_MS) return `it is dated in the future (${origin.sentAt})`;
  if (ageMs > SENT_WITHIN_MS) return `it was sent more than a week ago (${origin.sentAt})`;
  // The name of a partner's file is no name that a reporter knows, nor one by which restores are found.
  if (partnerEntry(registry, report.subject.server_name) === undefined) return "its subject is no partner";
  const reporter = report.reporter.server_name;
  if (reporter === own) return undefined;
  const partner = partnerEntry(registry, reporter)?.partner;
  if (partner === undefined) return "its reporter is no partner";
  if (partner.contained) return "its reporter is contained";
  return isRemoved(partner) ? "its reporter was removed" : undefined;
}

type Filing = Readonly<{ report: AbuseReport; origin: Origin; digest: string; federation: Federation }>;

const evidenceFolder = (config: string): string => join(dirname(resolve(config)), "evidence");

/** Contains, files, makes a pack, each whatever became of the one before. @throws what filing throws, at the end */
async function containFirst(filing: Filing, name: string, config: string) {
  const contained = await performAndPrint("contain", name, { config, apply: true }).catch(endWith);
  const [filed] = await Promise.allSettled([fileAndPrint(filing)]);
  const output = evidenceFolder(config);
  const packed = await writePack(name, { config, output, since: "24h" }).catch(endWith);
  if (filed.status === "rejected") throw filed.reason;
  return contained === "ok" ? packed : contained;
}

async function fileAndPrint({ report, digest, origin, federation }: Filing): Promise<void> {
  const filed = await fileReport(report, digest, federation);
  const { reporter, subject, category, severity, requested_action, evidence_refs } = report;
  const line = {
    event: "abuse_report",
    ...{ digest, reporter: reporter.server_name, subject: subject.server_name },
    ...{ category, severity, requested_action, evidence_refs },
    signed_by: origin.signed ? origin.keyId : null,
  };
  printText(`${JSON.stringify(line)}\n`);
  say(
    filed.isNew
      ? `Filed: ${filed.path} in commit ${short(filed.revision)}`
      : `Filed before: ${filed.path}; nothing was added.`,
  );
}
