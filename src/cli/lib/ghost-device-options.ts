// What the commands about ghosts' devices share.
import { pino } from "pino";
import { loadBridgeConfig } from "../../bridge/config.ts";
import { type DeviceAdmin, openDeviceAdmin } from "../../bridge/device-admin.ts";
import { systemClock, systemRandom } from "../../domain/clock.ts";
import { CONFIG, requireConfigFile } from "./config-option.ts";

/** Opens what the commands work on, and closes it whatever happens. */
export async function withDeviceAdmin<T>(
  configFile: string,
  work: (admin: DeviceAdmin) => Promise<T>,
): Promise<T> {
  requireConfigFile(configFile, CONFIG.bridge);
  const admin = await openDeviceAdmin({
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
