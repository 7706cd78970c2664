// The exit conditions of every stage, in their order.
import type { StageName } from "../../../records/format/stages.ts";
import { discoveryRules } from "./a2a-discovery.ts";
import { stopRules } from "./a2a-stop.ts";
import { dutiesRules } from "./data-duties.ts";
import type { Observation, Rule } from "./observation.ts";
import { borderRules } from "./policy-border.ts";
import { roomRules } from "./room.ts";
import { transportRules } from "./transport.ts";

export const STAGE_RULES: Readonly<Record<StageName, (seen: Observation) => readonly Rule[]>> = {
  a2a_stop: stopRules,
  a2a_discovery: discoveryRules,
  room: roomRules,
  policy_border: borderRules,
  transport: transportRules,
  data_duties: dutiesRules,
};
