// The supervisor's protocol over HTTP on loopback (GET /status, POST /command), and its client.
import * as z from "zod";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { readIfPresent } from "../../src/runtime/write-file.ts";
import { readJson } from "../files.ts";
import type { Lab } from "../lab.ts";
import { ORGANISATION_NAMES } from "../organisations.ts";
import { isAlive, ProcessIdentity } from "../processes.ts";

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
  /** Starts the units that the lab has gained, such as the witness; answered when they are started. */
  z.strictObject({ action: z.literal("extend") }),
  /** Ends every program, then the supervisor. Answered before it begins. */
  z.strictObject({ action: z.literal("shutdown") }),
]);
export type SupervisorCommand = z.output<typeof SupervisorCommand>;

export const UNIT_ACTIONS = ["start", "stop", "restart", "kill"] as const;
export type UnitAction = (typeof UNIT_ACTIONS)[number];

const Refusal = z.object({ message: z.string(), hint: z.string().optional() });
const TIMEOUT_MS = 120_000;

export interface SupervisorClient {
  status(): Promise<SupervisorStatus>;
  execute(command: SupervisorCommand): Promise<void>;
}

/** The recorded supervisor of a lab if it still runs; the record alone does not say so. */
export function liveSupervisor(lab: Lab): ProcessIdentity | undefined {
  const recorded = readJson(ProcessIdentity, lab.paths.supervisor);
  return recorded !== undefined && isAlive(recorded) ? recorded : undefined;
}

/**
 * @throws DrawbridgeError `not_running` by every method when the supervisor does not answer
 */
export function supervisorClient(lab: Lab): SupervisorClient {
  const token = readIfPresent(lab.paths.controlToken)?.trim() ?? "";
  const ask = async (path: string, body?: unknown): Promise<unknown> => {
    let response: Response;
    try {
      response = await fetch(`http://127.0.0.1:${lab.ports.control}${path}`, {
        method: body === undefined ? "GET" : "POST",
        headers: { authorization: `Bearer ${token}` },
        signal: AbortSignal.timeout(TIMEOUT_MS),
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
    } catch (cause) {
      throw new DrawbridgeError("not_running", `the lab ${lab.name} is not running`, {
        hint: "Start it with ./task fed:up.",
        cause,
      });
    }
    const answer: unknown = await response.json();
    if (response.ok) return answer;
    const { message, hint } = Refusal.parse(answer);
    throw new DrawbridgeError("usage", message, hint === undefined ? {} : { hint });
  };
  return {
    status: async () => SupervisorStatus.parse(await ask("/status")),
    execute: async (command) => {
      await ask("/command", command);
    },
  };
}
