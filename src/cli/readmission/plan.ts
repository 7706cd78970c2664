// drawbridge readmission plan: what is left, and what each step would change.

import { roomLines } from "../../federation/readmission/rooms.ts";
import { planReadmission } from "../../federation/readmission/status.ts";
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION, PARTNER } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { openReadmission, ROOMS_OPTION } from "../lib/readmission.ts";
import { planText } from "../lib/steps.ts";

export const command = defineCommand({
  arguments: [PARTNER],
  options: [ROOMS_OPTION, CONFIG.federation, JSON_OPTION],
  help: "\nChanges nothing. Asks the homeserver, and the partner's, about the rooms of plane 2.",
  async run([partner], options) {
    const planned = await planReadmission(await openReadmission(options), partner, options.rooms);
    const rooms = roomLines(planned.rooms, planned.touched).map((line) => `  ${line}`);
    print(options, planned, () => planText(planned, ({ plane }) => (plane === "rooms" ? rooms : [])));
  },
});
