// Stands between the gateway and the agent: notes in which order questions reach the agent, and can answer in its place.
// Invariants: what passes is not changed, and a broken connection on one side is broken on the other; a request that is
// answered here does not reach the agent; the card is served always.
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { TestContext } from "node:test";
import { listening } from "../support/load-balancer.ts";
import type { AgentFault } from "./schedule.ts";

export interface AgentProxyOptions {
  /** Where the agent listens. */
  readonly target: number;
  /** Called with the body of each request before the agent gets it. */
  readonly onRequest: (body: string) => void;
  /** What requests meet now; undefined: nothing. */
  readonly fault: () => AgentFault | undefined;
}

const RETRY_AFTER_SECONDS = 1;

/** @returns the port where it listens */
export async function startAgentProxy(
  t: Pick<TestContext, "after">,
  options: AgentProxyOptions,
): Promise<number> {
  const server = createServer((incoming, outgoing) => {
    void pass(options, incoming, outgoing).catch(() => outgoing.destroy());
  });
  return await listening(t, server);
}

async function pass(
  { target, onRequest, fault }: AgentProxyOptions,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks);
  const { method, url: path, headers } = incoming;
  const met = method === "POST" ? fault() : undefined;
  if (met === "hang") return;
  if (met !== undefined && met !== "drop") {
    outgoing.writeHead(met, met === 500 ? {} : { "retry-after": String(RETRY_AFTER_SECONDS) }).end();
    return;
  }
  if (body.length > 0) onRequest(body.toString());
  const passed = request({ host: "127.0.0.1", port: target, method, path, headers }, (answer) => {
    if (met === "drop") {
      outgoing.destroy();
      answer.resume();
      return;
    }
    outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.on("error", () => outgoing.destroy());
    answer.pipe(outgoing);
  });
  passed.on("error", () => outgoing.destroy());
  if (met !== "drop") outgoing.on("close", () => passed.destroy());
  passed.end(body);
}
