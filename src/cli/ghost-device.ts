// drawbridge ghost device: the state of the ghosts' devices, and the reset of one.
import { loadBridgeConfig } from "../bridge/config.ts";
import { DEVICE_STOP_HINTS } from "../bridge/crypto/device-checks.ts";
import { type DeviceReport, reportDevices, resetDevice } from "../bridge/device-admin.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { defineCommand, fromConfigFile, OPTION, print, renderRows, say } from "./lib/command.ts";

const configOf = (file: string) => fromConfigFile(file, "bridge", loadBridgeConfig);

function stateOf({ stopped, publishedAt }: DeviceReport): string {
  if (stopped !== null) return `stopped: ${stopped}`;
  return publishedAt === null ? "no keys yet" : "in use";
}

const yesNo = (value: boolean | null) => (value === null ? "-" : value ? "yes" : "no");

export const statusCommand = defineCommand({
  options: [OPTION.bridge, OPTION.json],
  help: `
A device is created once. It stops, and its ghost takes no part in encrypted rooms, when its store is lost or
belongs to another device, when the store was restored to an older state than the homeserver has recorded, and when
the device was deleted. The columns say what the bridge recorded and what the homeserver has now. Exit code 1: a device has
stopped, or the homeserver does not have the stored keys.`,
  async run(_, options) {
    const reports = await reportDevices(configOf(options.config));
    print(options, reports, () =>
      renderRows(reports, {
        GHOST: (one) => one.ghost,
        DEVICE: (one) => one.device,
        STATE: stateOf,
        STORE: (one) => yesNo(one.store),
        "AT THE HOMESERVER": (one) => one.homeserver.replaceAll("_", " "),
        "CROSS-SIGNED": (one) => yesNo(one.crossSigned),
        EPOCH: (one) => one.epoch ?? "-",
      }),
    );
    const stops = new Set(reports.map(({ stopped }) => stopped).filter((reason) => reason !== null));
    for (const reason of stops) say(`${reason}: ${DEVICE_STOP_HINTS[reason]}`);
    const disagrees = ({ homeserver, publishedAt }: DeviceReport) =>
      publishedAt !== null && (homeserver === "no_keys" || homeserver === "other_keys");
    if (stops.size > 0 || reports.some(disagrees)) return "failed";
    return reports.some(({ homeserver }) => homeserver === "unreachable") ? "unavailable" : "ok";
  },
});

export const resetCommand = defineCommand({
  arguments: [["<ghost>", "an agent's name in agents.yaml, or the ghost's user ID"]],
  options: [OPTION.bridge, ["--yes", "do it, knowing what is lost"], OPTION.json],
  help: `
Deletes the ghost's device at the homeserver, with its keys, and its store here. The ghost gets a new device and a
new cross-signing identity, which people's clients show as a changed identity. Lost for good: every key that only
the old device had, so encrypted questions that wait for an answer may expire; and the homeserver's memory of what
the old device sent, so an answer that was being sent at this moment may come twice. A bridge that runs takes the
new device up by itself within seconds.`,
  async run([ghost], options) {
    if (options.yes !== true) {
      throw new DrawbridgeError("usage", "a reset cannot be taken back", {
        hint: "Read --help; then repeat the command with --yes.",
      });
    }
    const done = await resetDevice(configOf(options.config), ghost);
    print(options, done, () => `${done.ghost}: device ${done.to} in place of ${done.from}\n`);
  },
});
