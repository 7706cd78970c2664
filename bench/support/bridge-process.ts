// The real bridge, in one or several processes of its own, on a folder as `drawbridge bridge init` writes it, between a
// homeserver that takes everything and an agent that notes when it is called.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse, stringify } from "yaml";
import { freePort } from "../../lab/ports.ts";
import { renderStartingFolder } from "../../src/bridge/setup/starting-folder.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import { bytesOf, minimalCard, signedCard, testKey } from "../../tests/support/cards.ts";
import { processorMs } from "./measure.ts";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
const READY_TIMEOUT_MS = 120_000;

async function listen(answer: (request: IncomingMessage, body: string, response: ServerResponse) => void) {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => answer(request, Buffer.concat(chunks).toString(), response));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

function sendJson(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value));
}

/** Takes every request of an appservice, and gives each event sent an ID. */
function startHomeserver(onSent: () => void) {
  let events = 0;
  return listen((request, _body, response) => {
    const path = request.url ?? "";
    const acting = new URL(path, "http://127.0.0.1").searchParams;
    if (path.includes("/versions")) return sendJson(response, { versions: ["v1.11"] });
    if (path.includes("/whoami")) {
      const user_id = acting.get("user_id") ?? "@drawbridge:a.test";
      return sendJson(response, { user_id, device_id: acting.get("device_id") ?? undefined });
    }
    if (path.includes("/ping")) return sendJson(response, { duration_ms: 1 });
    events += 1;
    if (path.includes("/send/")) onSent();
    sendJson(response, { event_id: `$sent${events}`, user_id: "@agent_docs:a.test", device_id: "D" });
  });
}

/** Answers at once by a message or, when the answer takes its time, by a task. */
async function startAgent(onQuestion: (question: string) => void, answerMs: number) {
  const key = await testKey("bench");
  let card: Uint8Array = Buffer.alloc(0);
  const readyAt = new Map<string, number>();
  const taskOf = (id: string) => {
    const isReady = performance.now() >= (readyAt.get(id) ?? 0);
    const artifacts = isReady ? [{ artifactId: "answer", parts: [{ text: "yes" }] }] : [];
    const state = isReady ? "TASK_STATE_COMPLETED" : "TASK_STATE_WORKING";
    return { id, contextId: id, status: { state }, artifacts };
  };
  const agent = await listen((request, body, response) => {
    if (request.method === "GET") {
      response.writeHead(200, { "content-type": "application/json" }).end(card);
      return;
    }
    const call = JSON.parse(body) as {
      id: unknown;
      params: { id?: string; message?: { parts: { text: string }[] } };
    };
    const { id: asked, message: question } = call.params;
    if (question === undefined) {
      sendJson(response, { jsonrpc: "2.0", id: call.id, result: taskOf(asked ?? "") });
      return;
    }
    onQuestion(question.parts[0]?.text ?? "");
    const id = systemRandom.bytes(8).toString("hex");
    const message = { messageId: id, role: "ROLE_AGENT", parts: [{ text: "yes" }] };
    if (answerMs > 0) readyAt.set(id, performance.now() + answerMs);
    const result = answerMs > 0 ? { task: taskOf(id) } : { message };
    sendJson(response, { jsonrpc: "2.0", id: call.id, result });
  });
  card = bytesOf(
    signedCard(key, {
      ...minimalCard(),
      version: "1",
      supportedInterfaces: [{ url: `${agent.url}/rpc`, protocolBinding: "JSONRPC", protocolVersion: "1.0" }],
    }),
  );
  return { ...agent, key };
}

export interface BenchBridge {
  /** Of each process. */
  readonly intakeUrls: readonly string[];
  readonly hsToken: string;
  /** Processor time of all its processes so far, in milliseconds. */
  processorMs(): number;
  stop(): Promise<void>;
}

const close = (server: Server) =>
  new Promise((resolve) => {
    server.closeAllConnections();
    server.close(resolve);
  });

export interface BenchBridgeOptions {
  readonly onQuestion?: (question: string) => void;
  /** An event was sent to a room. */
  readonly onSent?: () => void;
  readonly processes?: number;
  /** How long the agent works on an answer. */
  readonly answerMs?: number;
  readonly limits?: Readonly<Record<string, unknown>>;
}

async function isReady(child: ChildProcess, observePort: number): Promise<void> {
  const deadline = systemClock.now() + READY_TIMEOUT_MS;
  for (;;) {
    const ready = await fetch(`http://127.0.0.1:${observePort}/readyz`).catch(() => undefined);
    if (ready?.status === 200) return;
    if (systemClock.now() > deadline || child.exitCode !== null) {
      throw new Error(`the bridge is not ready: ${await ready?.text()}`);
    }
    await systemClock.sleep(100);
  }
}

/** Starts everything and waits until the bridge is ready. */
export async function startBenchBridge(
  databaseUrl: string,
  {
    onQuestion = () => undefined,
    onSent = () => undefined,
    processes = 1,
    answerMs = 0,
    limits = {},
  }: BenchBridgeOptions,
): Promise<BenchBridge> {
  const homeserver = await startHomeserver(onSent);
  const agent = await startAgent(onQuestion, answerMs);
  const directory = mkdtempSync(join(tmpdir(), "drawbridge-bench-"));
  const children: ChildProcess[] = [];
  const stop = async () => {
    await Promise.all(
      children.map(async (child) => {
        if (child.exitCode !== null) return;
        const exited = new Promise((resolve) => child.once("exit", resolve));
        child.kill("SIGTERM");
        await exited;
      }),
    );
    await Promise.all([close(homeserver.server), close(agent.server)]);
    rmSync(directory, { recursive: true, force: true });
  };
  const [listenPort, observePort] = [await freePort(), await freePort()];
  const files = renderStartingFolder(
    {
      serverName: "a.test",
      homeserverUrl: homeserver.url,
      appserviceUrl: `http://127.0.0.1:${listenPort}`,
      listenPort,
      observePort,
      databaseUrlVariable: "BENCH_DATABASE_URL",
    },
    systemRandom,
  );
  const agents = {
    version: 1,
    agents: {
      docs: {
        cardUrl: `${agent.url}/card.json`,
        cardIdentity: { keyId: "bench", jwk: agent.key.jwk },
        allowedServers: ["a.test"],
        allowedSenders: ["*:a.test"],
        rate: { perMinute: 1_000_000, burst: 1_000_000 },
      },
    },
  };
  for (const [name, content] of Object.entries({ ...files, "agents.yaml": stringify(agents) })) {
    mkdirSync(dirname(join(directory, name)), { recursive: true });
    writeFileSync(join(directory, name), content, { mode: 0o600 });
  }
  const config = parse(files["bridge.yaml"] ?? "") as Readonly<Record<string, object>>;
  const intakeUrls: string[] = [];
  try {
    for (let n = 0; n < processes; n++) {
      const ports = n === 0 ? [listenPort, observePort] : [await freePort(), await freePort()];
      const [listens = 0, observes = 0] = ports;
      const file = join(directory, `bridge-${n}.yaml`);
      const listen = { ...config["listen"], port: listens };
      const own = { ...config, limits, listen, observe: { ...config["observe"], port: observes } };
      writeFileSync(file, stringify(own), { mode: 0o600 });
      const child = spawn(process.execPath, [MAIN, "bridge", "--config", file], {
        env: { ...process.env, BENCH_DATABASE_URL: databaseUrl },
        stdio: ["ignore", "ignore", "inherit"],
      });
      children.push(child);
      await isReady(child, observes);
      intakeUrls.push(`http://127.0.0.1:${listens}`);
    }
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    intakeUrls,
    hsToken: (files["secrets/hs-token"] ?? "").trim(),
    processorMs: () => children.reduce((sum, { pid }) => sum + (pid === undefined ? 0 : processorMs(pid)), 0),
    stop,
  };
}
