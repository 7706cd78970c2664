// drawbridge offboarding purge: shows what can be purged of a partner's data, and purges what was shown.
import { shellWord } from "../../domain/printable.ts";
import { dryRun, NOT_PURGEABLE, runPurge } from "../../federation/offboarding/duties/purge.ts";
import type { PurgePlan, PurgeState } from "../../federation/offboarding/duties/purge-plan.ts";
import { residualReport } from "../../federation/offboarding/duties/residual.ts";
import { counterpartyIn, findRun } from "../../federation/offboarding/run/run-file.ts";
import { acceptedState } from "../../federation/reconcile/accept-head.ts";
import { defineCommand, OPTION, print, say, tableIfAny } from "../lib/command.ts";
import { openForCommand } from "../lib/federation.ts";

export const purgeCommand = defineCommand({
  arguments: [["<partner>", "server name, name of the registry file, or ID of the run"]],
  options: [
    OPTION.federation,
    ["--confirm <digest>", "purge what the dry run of this digest has shown"],
    ["--residual", "show what remains of the partnership instead: counts and times"],
    OPTION.json,
  ],
  help: `
What the record's duties.purge says is purged: cached files of the partner, and rooms or their history.
Without --confirm it shows what would go, and a digest; --confirm takes it, and refuses if more would go than was shown. A
purge that was cut off goes on where it was when it is run again.
Exit code 1: something is not gone yet, and is named. 5: purged; what the homeserver can never delete is named.`,
  async run([name], options) {
    const context = { ...(await openForCommand(options.config)), say };
    const { registry } = (await acceptedState(context)).desired;
    const entry = registry.partners.find((one) => one.name === name);
    // A partner that has left the registry already is still named by its server.
    const found = findRun(context.state, entry?.partner.serverName ?? name);
    if (options.residual === true) {
      const report = await residualReport(context, found);
      print(options, report, () => residualText(report));
      return "ok";
    }
    if (options.confirm !== undefined) {
      const state = await runPurge(context, found, options.confirm);
      print(options, resultOf(state), () => resultText(state));
      return leftOf(state).length > 0 ? "incomplete" : "ok";
    }
    const plan = await dryRun(context, found);
    const title = `The purge of ${counterpartyIn(found)}, run ${found.run}:\n`;
    print(options, plan, () => title + planText(plan));
    if (options.json !== true) {
      const where = `${shellWord(name)} --config ${shellWord(options.config)}`;
      say("Nothing was purged. To purge this and nothing else:");
      say(`  drawbridge offboarding purge ${where} --confirm ${plan.digest}`);
    }
    return "ok";
  },
});

function planText({ media, rooms, staying }: PurgePlan): string {
  const { files, kept_in_quarantine: left } = media;
  const released = files.filter(({ quarantined }) => quarantined).length;
  const others = media.other_files ?? "an unknown number";
  const notKnown = "Files in encrypted rooms are not known: homeserver.databaseUrl is not set.";
  return textOf([
    media.purge
      ? `Cached files of the partner: ${files.length} go, of them ${released} out of quarantine; ${left} stay in it.`
      : "Cached files of the partner: kept, as the record says.",
    media.purge && files.length > 0
      ? `Files of other servers that go with them, and come again when used: ${others}.`
      : "",
    media.purge && !media.is_whole ? notKnown : "",
    tableIfAny(
      ["ROOM", "WHAT GOES", "OWN", "PARTNER", "OTHERS", "OWN MEMBERS", "OTHER SERVERS"],
      rooms.map(({ room, how, events, local_members, other_servers }) => [
        room,
        how === "room" ? "all of it" : "others' events",
        ...[events.own, events.partner, events.others, local_members].map(String),
        other_servers.join(" ") || "-",
      ]),
    ),
    ...staying.map(
      ({ subject, reason, events }) =>
        `Stays: ${subject} (${reason}${events === null ? "" : `, ${events} events of the partner`})`,
    ),
  ]);
}

/** Lines and tables, without those that are empty. */
function textOf(parts: readonly string[]): string {
  const lines = parts.filter((part) => part !== "").map((part) => `${part.trimEnd()}\n`);
  return lines.join("");
}

function leftOf({ done }: PurgeState): readonly string[] {
  return done?.items.find(({ subject }) => subject === NOT_PURGEABLE)?.references ?? [];
}

function resultOf(state: PurgeState) {
  const { plan, begun, done } = state;
  return {
    digest: plan.digest,
    files: plan.media.files.length,
    rooms: begun?.rooms ?? [],
    rows: { before: begun?.before ?? null, after: done?.after ?? null },
    left: leftOf(state),
    staying: plan.staying,
    evidence: done?.items ?? [],
  };
}

function resultText(state: PurgeState): string {
  const { files, rooms, rows, left } = resultOf(state);
  return textOf([
    `Purged: ${files} cached files, ${rooms.length} rooms.`,
    ...rooms.map((at) => `  ${at.room} (${at.how}): ${at.before} events before, ${at.after} of others after`),
    tableIfAny(
      ["TABLE", "BEFORE", "AFTER"],
      Object.keys({ ...rows.before, ...rows.after }).map((name) => [
        name,
        ...[rows.before?.[name], rows.after?.[name]].map((count) => String(count ?? "-")),
      ]),
    ),
    left.length === 0
      ? ""
      : `No interface of the homeserver can delete: ${left.join(" ")} (${NOT_PURGEABLE}; it has to be waived)`,
  ]);
}

function residualText({ statement, unknown }: Awaited<ReturnType<typeof residualReport>>): string {
  const { rooms, device_keys, tokens_live_until, third_servers } = statement;
  const why = (field: string) => `not known (${unknown[field] ?? "unknown"})`;
  return textOf([
    `Events of the partner that are here: ${rooms.reduce((sum, { events }) => sum + (events ?? 0), 0)} in ${rooms.length} rooms.`,
    ...rooms.flatMap((one) => (one.events === null ? `Of ${one.room}: ${why("rooms")}.` : [])),
    "What its server has of those rooms, ours among it, is not retracted.",
    `Device keys of its users that are cached here: ${device_keys ?? why("device_keys")}.`,
    `Tokens of its client end at: ${tokens_live_until ?? why("tokens_live_until")}.`,
    `Streams still open: ${why("streams")}.`,
    "third_servers" in unknown ? `Other servers in those rooms: ${why("third_servers")}.` : "",
    ...third_servers.map(({ server, rooms: n }) => `Shares ${n} rooms with us and the partner: ${server}.`),
  ]);
}
