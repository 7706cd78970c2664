// What the supervisor is asked and answers, over HTTP on loopback: GET /status, POST /command.
import { z } from "zod";
import { ORGANISATION_NAMES } from "../organisations.ts";

const Organisation = z.enum(ORGANISATION_NAMES);
const Link = z.tuple([Organisation, Organisation]);

export const UNIT_STATES = ["waiting", "starting", "ready", "restarting", "stopping", "stopped"] as const;

export const UnitStatus = z.strictObject({
  name: z.string(),
  state: z.enum(UNIT_STATES),
  /** Of the program while one runs. */
  pid: z.int().nullable(),
  /** Programs started again after they ended by themselves. */
  restarts: z.int(),
  /** Milliseconds since the Unix epoch when this state began. */
  since: z.number(),
  /** From the program's start until it was ready. */
  readyAfterMs: z.number().nullable(),
  /** How the last program ended, such as `exit 1` or `SIGKILL`. */
  lastEnd: z.string().nullable(),
  log: z.string(),
});
export type UnitStatus = z.output<typeof UnitStatus>;

export const SupervisorStatus = z.strictObject({
  pid: z.int(),
  startedAt: z.number(),
  units: z.array(UnitStatus),
  /** Links that are cut now. */
  cutLinks: z.array(Link),
});
export type SupervisorStatus = z.output<typeof SupervisorStatus>;

export const SupervisorCommand = z.discriminatedUnion("action", [
  z.strictObject({ action: z.literal("start"), unit: z.string() }),
  z.strictObject({ action: z.literal("stop"), unit: z.string() }),
  z.strictObject({ action: z.literal("restart"), unit: z.string() }),
  /** The program is sent SIGKILL; it counts as having died, and is started again. */
  z.strictObject({ action: z.literal("kill"), unit: z.string() }),
  z.strictObject({ action: z.literal("cut"), between: Link }),
  z.strictObject({ action: z.literal("heal"), between: Link }),
  /** Takes up what the lab has gained since, such as the witness; answered when its programs are started. */
  z.strictObject({ action: z.literal("extend") }),
  /** Ends every program, then the supervisor. Answered before it begins. */
  z.strictObject({ action: z.literal("shutdown") }),
]);
export type SupervisorCommand = z.output<typeof SupervisorCommand>;

export const UNIT_ACTIONS = ["start", "stop", "restart", "kill"] as const;
export type UnitAction = (typeof UNIT_ACTIONS)[number];
