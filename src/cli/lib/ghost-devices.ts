// How the commands about ghosts' devices open what they work on.
import { pino } from "pino";
import { loadBridgeConfig } from "../../bridge/config.ts";
import { DeviceAdmin } from "../../bridge/device-admin.ts";
import { systemClock, systemRandom } from "../../domain/clock.ts";
import { requireConfigFile } from "./options.ts";

/** Opens the devices of a bridge, and closes them whatever happens. */
export async function withDeviceAdmin<T>(
  configFile: string,
  work: (admin: DeviceAdmin) => Promise<T>,
): Promise<T> {
  requireConfigFile(configFile, "bridge");
  const admin = await DeviceAdmin.open({
    config: loadBridgeConfig(configFile),
    clock: systemClock,
    random: systemRandom,
    log: pino({ level: "silent" }),
  });
  try {
    return await work(admin);
  } finally {
    await admin.close();
  }
}
