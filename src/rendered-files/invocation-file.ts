// invocation.yaml: who may invoke which agent through a gateway, and how often (plane 5).
// Invariants: a client is named in full, never by a pattern; an agent without clients has no route.
import { z } from "zod";
import { parseAgentId } from "../domain/identifiers.ts";
import { AbsolutePath, ClientId, Quota, UpstreamUrl } from "./fields.ts";

const AgentName = z
  .string()
  .refine((value) => parseAgentId(value) !== undefined, { error: "not an agent name" });

export const InvokedAgent = z.strictObject({
  /**
   * The agent's own JSON-RPC endpoint, reached by the gateway alone. Its HTTP+JSON interface, if it has
   * one, is below it.
   */
  upstream: UpstreamUrl,
  /** JSON-RPC by POST on exactly this path; HTTP+JSON below it when `httpJson` is set. */
  invokePath: AbsolutePath,
  httpJson: z.boolean().default(false),
  /** Client IDs (`azp`) that may invoke it. Empty: nobody, and the path answers 404. */
  clients: z.array(ClientId),
  /** Pass the caller's token on to the agent. The agent learns the caller from `x-azp` either way. */
  forwardToken: z.boolean().default(false),
});
export type InvokedAgent = z.output<typeof InvokedAgent>;

export const InvocationFile = z.strictObject({
  version: z.literal(1),
  agents: z.record(AgentName, InvokedAgent),
  /** Per `azp`; a client without its own gets `default`. */
  quotas: z.strictObject({ default: Quota, clients: z.record(ClientId, Quota).default({}) }),
});
export type InvocationFile = z.output<typeof InvocationFile>;
