// drawbridge readmission plan: what each remaining step would change, and what becomes of the rooms.
import { planReadmission } from "../../federation/readmission/next-step.ts";
import { roomLines } from "../../federation/readmission/rooms.ts";
import { defineCommand, OPTION, PARTNER, print } from "../lib/command.ts";
import { planText } from "../lib/federation.ts";
import { openReadmission, ROOMS_OPTION } from "../lib/readmission.ts";

export const planCommand = defineCommand({
  arguments: [PARTNER],
  options: [ROOMS_OPTION, OPTION.federation, OPTION.json],
  help: "\nChanges nothing. Asks the homeserver, and the partner's, about the rooms of plane 2.",
  async run([partner], options) {
    const planned = await planReadmission(await openReadmission(options), partner, options.rooms);
    const rooms = roomLines(planned.rooms, planned.touched).map((line) => `  ${line}`);
    print(options, planned, () => planText(planned, ({ plane }) => (plane === "rooms" ? rooms : [])));
  },
});
