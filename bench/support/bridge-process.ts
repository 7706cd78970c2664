// The real bridge, in one or several processes of its own, on a folder as `drawbridge bridge init` writes it, between a
// homeserver that takes everything and an agent that notes when it is called.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { Server } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse, stringify } from "yaml";
import { freePort } from "../../lab/ports.ts";
import { renderStartingFolder } from "../../src/bridge/setup/starting-folder.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import { type AgentBehaviour, startAgents } from "./bench-agents.ts";
import { listen, sendJson } from "./json-server.ts";
import { processorMs, residentMiB } from "./measure.ts";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
const READY_TIMEOUT_MS = 120_000;
const STOP_MS_MAX = 60_000;

/** A message of a ghost: an answer is `m.text`, all else `m.notice`. */
export interface SentContent {
  readonly msgtype?: string;
  readonly "m.relates_to"?: { readonly "m.in_reply_to"?: { readonly event_id?: string } };
}

/** Takes every request of an appservice, and gives each event sent an ID. */
function startHomeserver(onSent: (content: SentContent) => void) {
  let events = 0;
  return listen((request, body, response) => {
    const path = request.url ?? "";
    const acting = new URL(path, "http://127.0.0.1").searchParams;
    if (path.includes("/versions")) return sendJson(response, { versions: ["v1.11"] });
    if (path.includes("/whoami")) {
      const user_id = acting.get("user_id") ?? "@drawbridge:a.test";
      return sendJson(response, { user_id, device_id: acting.get("device_id") ?? undefined });
    }
    // No room is encrypted, and nothing is pinned.
    if (request.method === "GET" && (path.includes("/account_data/") || path.includes("/state/"))) {
      return sendJson(response, { errcode: "M_NOT_FOUND", error: "Nothing is kept." }, 404);
    }
    if (path.includes("/ping")) return sendJson(response, { duration_ms: 1 });
    if (path.includes("/sync")) {
      // Nothing happens, and a request that is held open ends at its time: another answer means a homeserver that stopped.
      const held = setTimeout(() => sendJson(response, { next_batch: "s1" }), Number(acting.get("timeout")));
      response.once("close", () => clearTimeout(held));
      return;
    }
    events += 1;
    if (path.includes("/send/m.room.message/")) onSent(JSON.parse(body) as SentContent);
    sendJson(response, { event_id: `$sent${events}`, user_id: "@agent_docs:a.test", device_id: "D" });
  });
}

export interface BenchBridge {
  /** Of each process. */
  readonly intakeUrls: readonly string[];
  readonly hsToken: string;
  /** From the start of the first process until it was ready, in milliseconds. */
  readonly startMs: number;
  /** Processor time of all its processes so far, in milliseconds. */
  processorMs(): number;
  /** Memory of all its processes, in MiB. */
  residentMiB(): number;
  stop(): Promise<void>;
}

const sumOf = (children: readonly ChildProcess[], measure: (pid: number) => number) =>
  children.reduce((sum, { pid }) => sum + (pid === undefined ? 0 : measure(pid)), 0);

const close = (server: Server) =>
  new Promise((resolve) => {
    server.closeAllConnections();
    server.close(resolve);
  });

export interface BenchBridgeOptions {
  readonly onQuestion?: (question: string) => void;
  /** A message was sent to a room. */
  readonly onSent?: (content: SentContent) => void;
  readonly processes?: number;
  /** How each agent answers, by its name; one agent `docs` answers at once unless this says otherwise. */
  readonly agents?: Readonly<Record<string, AgentBehaviour>>;
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
    await systemClock.sleep(20);
  }
}

/** Starts everything and waits until the bridge is ready. */
export async function startBenchBridge(
  databaseUrl: string,
  {
    onQuestion = () => undefined,
    onSent = () => undefined,
    processes = 1,
    agents: behaviours = { docs: { kind: "answer" } },
    limits = {},
  }: BenchBridgeOptions,
): Promise<BenchBridge> {
  const homeserver = await startHomeserver(onSent);
  const agent = await startAgents(behaviours, onQuestion);
  const directory = mkdtempSync(join(tmpdir(), "drawbridge-bench-"));
  const children: ChildProcess[] = [];
  const stop = async () => {
    await Promise.all(
      children.map(async (child) => {
        if (child.exitCode !== null) return;
        const exited = new Promise((resolve) => child.once("exit", resolve));
        child.kill("SIGTERM");
        const patience = setTimeout(() => child.kill("SIGKILL"), STOP_MS_MAX);
        await exited;
        clearTimeout(patience);
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
    agents: Object.fromEntries(
      Object.keys(behaviours).map((name) => [
        name,
        {
          cardUrl: `${agent.url}/${name}/card.json`,
          cardIdentity: { keyId: "bench", jwk: agent.key.jwk },
          allowedServers: ["a.test"],
          allowedSenders: ["*:a.test"],
          rate: { perMinute: 1_000_000, burst: 1_000_000 },
        },
      ]),
    ),
  };
  for (const [name, content] of Object.entries({
    ...files,
    "agents.yaml": stringify(agents, { aliasDuplicateObjects: false }),
  })) {
    mkdirSync(dirname(join(directory, name)), { recursive: true });
    writeFileSync(join(directory, name), content, { mode: 0o600 });
  }
  const config = parse(files["bridge.yaml"] ?? "") as Readonly<Record<string, object>>;
  const intakeUrls: string[] = [];
  let startMs = 0;
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
      const begun = performance.now();
      await isReady(child, observes);
      if (n === 0) startMs = performance.now() - begun;
      intakeUrls.push(`http://127.0.0.1:${listens}`);
    }
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    intakeUrls,
    startMs,
    hsToken: (files["secrets/hs-token"] ?? "").trim(),
    processorMs: () => sumOf(children, processorMs),
    residentMiB: () => sumOf(children, residentMiB),
    stop,
  };
}
