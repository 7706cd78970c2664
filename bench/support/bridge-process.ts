// The real bridge as a process of its own, on a folder as `drawbridge bridge init` writes it, between a
// homeserver that takes everything and an agent that notes when it is called.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { stringify } from "yaml";
import { freePort } from "../../lab/ports.ts";
import { renderStartingFolder } from "../../src/bridge/setup/starting-folder.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import { bytesOf, minimalCard, signedCard, testKey } from "../../tests/support/cards.ts";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
const READY_TIMEOUT_MS = 30_000;

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
function startHomeserver() {
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
    sendJson(response, { event_id: `$sent${events}`, user_id: "@agent_docs:a.test", device_id: "D" });
  });
}

async function startAgent(onQuestion: (question: string) => void) {
  const key = await testKey("bench");
  let card: Uint8Array = Buffer.alloc(0);
  const agent = await listen((request, body, response) => {
    if (request.method === "GET") {
      response.writeHead(200, { "content-type": "application/json" }).end(card);
      return;
    }
    const call = JSON.parse(body) as { id: unknown; params: { message: { parts: { text: string }[] } } };
    onQuestion(call.params.message.parts[0]?.text ?? "");
    const message = {
      messageId: systemRandom.bytes(8).toString("hex"),
      role: "ROLE_AGENT",
      parts: [{ text: "yes" }],
    };
    sendJson(response, { jsonrpc: "2.0", id: call.id, result: { message } });
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
  readonly intakeUrl: string;
  readonly hsToken: string;
  stop(): Promise<void>;
}

const close = (server: Server) =>
  new Promise((resolve) => {
    server.closeAllConnections();
    server.close(resolve);
  });

/** Starts everything and waits until the bridge is ready. */
export async function startBenchBridge(
  databaseUrl: string,
  onQuestion: (question: string) => void,
): Promise<BenchBridge> {
  const homeserver = await startHomeserver();
  const agent = await startAgent(onQuestion);
  const directory = mkdtempSync(join(tmpdir(), "drawbridge-bench-"));
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
  const child = spawn(process.execPath, [MAIN, "bridge", "--config", join(directory, "bridge.yaml")], {
    env: { ...process.env, BENCH_DATABASE_URL: databaseUrl },
    stdio: ["ignore", "ignore", "inherit"],
  });
  const exited = new Promise((resolve) => child.once("exit", resolve));
  const stop = async () => {
    child.kill("SIGTERM");
    await exited;
    await Promise.all([close(homeserver.server), close(agent.server)]);
    rmSync(directory, { recursive: true, force: true });
  };
  const deadline = systemClock.now() + READY_TIMEOUT_MS;
  for (;;) {
    const ready = await fetch(`http://127.0.0.1:${observePort}/readyz`).catch(() => undefined);
    if (ready?.status === 200) break;
    if (systemClock.now() > deadline) {
      const why = await ready?.text();
      await stop();
      throw new Error(`the bridge is not ready: ${why}`);
    }
    await systemClock.sleep(100);
  }
  return {
    intakeUrl: `http://127.0.0.1:${listenPort}`,
    hsToken: (files["secrets/hs-token"] ?? "").trim(),
    stop,
  };
}
