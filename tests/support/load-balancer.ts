// A load balancer in front of bridge processes, as docs/operating/run-a-bridge.md describes one, but for its patience: a
// request that one process does not answer within a second goes to another.
// Invariant: a request fails only when every process was tried several times.
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { systemClock } from "../../src/domain/clock.ts";

type Disposer = Pick<TestContext, "after">;

/** What becomes of a transaction on its way to the bridge. */
export type OnTransaction = (body: Readonly<Record<string, unknown>>) => "pass" | "fail";

const PATIENCE_MS = 60_000;
const POLL_MS = 50;

/** Where the proxy passes requests on to. */
export interface Balanced {
  ports: readonly number[];
  turn: number;
  failed: number;
  /** How often each process is tried before a request fails; three times when absent. */
  readonly tries?: number;
  /** Told of each transaction that was answered 200, after the homeserver was. */
  readonly onAcknowledged?: (body: Readonly<Record<string, unknown>>) => void;
  /** How long one of several processes may take to answer; a second when absent. */
  patienceMs?: number | undefined;
}

const REDISPATCH_AFTER_MS = 1_000;

/** Stands where the homeserver looks for the bridge. */
export async function startLoadBalancer(
  t: Disposer,
  port: number,
  reached: Balanced,
  onTransaction: OnTransaction = () => "pass",
): Promise<void> {
  const server = createServer((incoming, outgoing) => {
    void forward(incoming, outgoing, reached, onTransaction).catch(() => outgoing.destroy());
  });
  await listening(t, server, port);
}

async function forward(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  reached: Balanced,
  onTransaction: OnTransaction,
): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks);
  const isTransaction = incoming.url?.includes("/transactions/") === true;
  if (isTransaction && onTransaction(JSON.parse(body.toString())) === "fail") {
    outgoing.writeHead(502).end("{}");
    return;
  }
  const { ports } = reached;
  // Only a request that could go to another process is given up.
  const patienceMs = ports.length > 1 ? (reached.patienceMs ?? REDISPATCH_AFTER_MS) : PATIENCE_MS;
  const first = reached.turn++;
  for (let tried = 0; tried < (reached.tries ?? 3) * ports.length; tried++) {
    const port = ports[(first + tried) % ports.length] ?? 0;
    const answer = await attempt(incoming, body, port, patienceMs).catch(() => undefined);
    if (answer === undefined && ports.length > 1) {
      await systemClock.sleep(POLL_MS);
      continue;
    }
    if (answer === undefined || answer.status >= 500) reached.failed += 1;
    outgoing.writeHead(answer?.status ?? 502, answer?.headers).end(answer?.body ?? "{}");
    if (isTransaction && answer?.status === 200) reached.onAcknowledged?.(JSON.parse(body.toString()));
    return;
  }
  reached.failed += 1;
  outgoing.writeHead(502).end("{}");
}

/** Rejects when the process does not answer in time. */
async function attempt(
  { method, url: path, headers }: IncomingMessage,
  body: Buffer,
  port: number,
  patienceMs: number,
): Promise<{ readonly status: number; readonly headers: IncomingHttpHeaders; readonly body: Buffer }> {
  const signal = AbortSignal.timeout(patienceMs);
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const passed = request({ host: "127.0.0.1", port, method, path, headers, signal }, resolve);
    passed.on("error", reject);
    passed.end(body);
  });
  const chunks: Buffer[] = [];
  for await (const chunk of answer) chunks.push(chunk as Buffer);
  return { status: answer.statusCode ?? 502, headers: answer.headers, body: Buffer.concat(chunks) };
}

/** Listens until the test ends. @returns the port */
export async function listening(
  t: Disposer,
  server: ReturnType<typeof createServer>,
  port = 0,
): Promise<number> {
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  t.after(
    () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  );
  return (server.address() as AddressInfo).port;
}
