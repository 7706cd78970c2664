// Talks to a lab's supervisor.
import { z } from "zod";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { readIfPresent } from "../../src/runtime/write-file.ts";
import { readJson } from "../files.ts";
import type { Lab } from "../lab.ts";
import { isAlive, ProcessIdentity } from "../process-identity.ts";
import { type SupervisorCommand, SupervisorStatus } from "./protocol.ts";

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
