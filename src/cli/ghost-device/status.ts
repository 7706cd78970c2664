// drawbridge ghost device status: of each ghost's device, whether it takes part, and why not.
import { DEVICE_STOP_HINTS } from "../../bridge/crypto/device-checks.ts";
import type { DeviceReport } from "../../bridge/device-admin.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { withDeviceAdmin } from "../lib/ghost-devices.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";
import { print, renderTable, say } from "../lib/output.ts";

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

export const command = defineCommand({
  options: [CONFIG.bridge, JSON_OPTION],
  help: `
A device is created once. It stops, and its ghost takes no part in encrypted rooms, when its store is lost or
belongs to another device, when the store was restored to an older state than the homeserver has recorded, and when
the device was deleted. The columns say what the bridge recorded and what the homeserver has now. Exit code 1: a device has
stopped, or the homeserver does not have the stored keys.`,
  async run(_, options) {
    const reports = await withDeviceAdmin(options.config, (admin) => admin.status());
    print(options, reports, () => renderTable(HEADER, reports.map(rowOf)));
    const stops = new Set(reports.map(({ stopped }) => stopped).filter((reason) => reason !== null));
    for (const reason of stops) say(`${reason}: ${DEVICE_STOP_HINTS[reason]}`);
    const disagrees = ({ homeserver, publishedAt }: DeviceReport) =>
      publishedAt !== null && (homeserver === "no_keys" || homeserver === "other_keys");
    if (stops.size > 0 || reports.some(disagrees)) return ExitCode.failed;
    return reports.some(({ homeserver }) => homeserver === "unreachable")
      ? ExitCode.unavailable
      : ExitCode.ok;
  },
});
