// The include file of the transport plane, read back before it is applied.
import { z } from "zod";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { parseYaml } from "../../../runtime/load-yaml.ts";
import type { DesiredPlane } from "../plane.ts";
import { TRANSPORT_INCLUDE } from "./render.ts";

/** What may stand in it: another key would be a setting of the homeserver that nobody reviewed. */
const Include = z.strictObject({
  federation_domain_whitelist: z.array(z.string()),
  federation_whitelist_endpoint_enabled: z.literal(true),
  trusted_key_servers: z.array(z.strictObject({ server_name: z.string() })),
  suppress_key_server_warning: z.literal(true).optional(),
});

export interface DesiredInclude {
  readonly text: string;
  /** Sorted. */
  readonly whitelist: readonly string[];
}

/** @throws ConfigError, DrawbridgeError `head_refused` */
export function desiredInclude(desired: DesiredPlane): DesiredInclude {
  const text = desired.files.get(TRANSPORT_INCLUDE);
  if (text === undefined) {
    throw new DrawbridgeError("head_refused", `rendered/${TRANSPORT_INCLUDE} is missing`, {
      hint: "Run `drawbridge federation render` and commit what it writes; nothing was applied.",
    });
  }
  const include = parseYaml(Include, text, `rendered/${TRANSPORT_INCLUDE}`);
  return { text, whitelist: [...new Set(include.federation_domain_whitelist)].sort() };
}
