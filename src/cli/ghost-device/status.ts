// drawbridge ghost device status: of each ghost's device, whether it takes part, and why not.
import process from "node:process";
import type { Command } from "commander";
import { DEVICE_STOP_MENDS } from "../../bridge/crypto/device-types.ts";
import type { DeviceReport } from "../../bridge/device-admin.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
import { CONFIG } from "../lib/config-option.ts";
import { withDeviceAdmin } from "../lib/ghost-device-options.ts";
import { renderJson, renderTable } from "../lib/output.ts";

const HEADER = ["GHOST", "DEVICE", "STATE", "STORE", "AT THE HOMESERVER", "CROSS-SIGNED", "EPOCH"];

function stateOf({ stopped, publishedAt }: DeviceReport): string {
  if (stopped !== null) return `stopped: ${stopped}`;
  return publishedAt === null ? "no keys yet" : "in use";
}

const yesNo = (value: boolean | null) => (value === null ? "-" : value ? "yes" : "no");

function rowOf(report: DeviceReport): string[] {
  return [
    report.ghost,
    report.device,
    stateOf(report),
    yesNo(report.store),
    report.homeserver.replaceAll("_", " "),
    yesNo(report.crossSigned),
    report.epoch ?? "-",
  ];
}

async function run(options: { config: string; json: boolean }): Promise<void> {
  const reports = await withDeviceAdmin(options.config, (admin) => admin.status());
  process.stdout.write(options.json ? renderJson(reports) : renderTable(HEADER, reports.map(rowOf)));
  const stops = new Set(reports.map(({ stopped }) => stopped).filter((reason) => reason !== null));
  for (const reason of stops) process.stderr.write(`${reason}: ${DEVICE_STOP_MENDS[reason]}\n`);
  const disagrees = ({ homeserver, publishedAt }: DeviceReport) =>
    publishedAt !== null && (homeserver === "no_keys" || homeserver === "other_keys");
  if (stops.size > 0 || reports.some(disagrees)) process.exitCode = ExitCode.failed;
  else if (reports.some(({ homeserver }) => homeserver === "unreachable")) {
    process.exitCode = ExitCode.unavailable;
  }
}

export const command: CommandModule = {
  register(program: Command): void {
    program
      .option(...CONFIG.bridge)
      .option("--json", "print JSON", false)
      .addHelpText(
        "after",
        `
A device is made once. It stops, and its ghost takes no part in encrypted rooms, when its store is lost or
another device's, when an older state of the store was put back than the homeserver has seen, and when the device
was deleted. The columns say what the bridge recorded and what the homeserver has now. Exit code 1: a device has
stopped, or the homeserver has not the keys that are stored.`,
      )
      .action(run);
  },
};
