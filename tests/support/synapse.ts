// One real Synapse on a database of its own, with the bridge's registration: for tests of what a homeserver
// really does. Its configuration is rendered by the lab's code; whoever starts it disposes of it.
import { type ChildProcess, spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parse, stringify } from "yaml";
import { createDatabases } from "../../lab/configuration/databases.ts";
import { HOMESERVER_FILES, renderHomeserver } from "../../lab/configuration/synapse-config.ts";
import { freePort } from "../../lab/ports.ts";
import { findPrograms } from "../../lab/programs.ts";
import { renderRegistration } from "../../src/bridge/setup/registration.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { RoomId, ServerName, UserId } from "../../src/domain/identifiers.ts";
import { freshSigningKey } from "../../src/federation/homeserver/signed-request.ts";
import { ROOT } from "./temporary.ts";
import { startTestServer, TEST_POSTGRES_URL } from "./test-server.ts";

const START_TIMEOUT_MS = 120_000;
const SERVER_NAME = "a.test" as ServerName;

export interface TestSynapse {
  readonly url: string;
  /** Where other servers reach it, when it federates; without TLS. */
  readonly federationUrl: string;
  readonly databaseUrl: string;
  readonly serverName: ServerName;
  readonly asToken: string;
  readonly hsToken: string;
  /** The registered bridge, of which nothing runs unless the test listens there. */
  readonly bridge: { readonly port: number };
  /** What the bridge's configuration says of both sides. */
  readonly config: ReturnType<typeof bridgeSide>;
  user(name: string): Promise<TestUser>;
  /** Ends Synapse in order and starts it again on the same data. */
  restart(): Promise<void>;
  stop(): Promise<void>;
  /** Ends Synapse as a crash does. */
  kill(): Promise<void>;
  start(): Promise<void>;
  /** Has Synapse hang: it takes connections and answers nothing; returns how to let it go on. */
  freeze(): () => void;
  /** Ends everything and removes its data. */
  dispose(): Promise<void>;
}

export interface TestSynapseOptions {
  /** Whether other servers may reach it. */
  readonly federates?: boolean;
  /** Loads the border module, with a policy that allows these servers. */
  readonly allowedServers?: readonly string[];
  /** Makes the registration file as an operator would, before the homeserver starts; returns its path. */
  readonly register?: (homeserverUrl: string, bridgePort: number) => Promise<string>;
}

/** A person at the homeserver. */
export interface TestUser {
  readonly userId: UserId;
  readonly accessToken: string;
  /** The same person on a device of its own. */
  logIn(): Promise<TestUser>;
  /** A request to the client-server API; throws for anything but a success. */
  call(method: string, path: string, body?: unknown): Promise<Record<string, unknown>>;
  createRoom(options?: Readonly<Record<string, unknown>>): Promise<RoomId>;
  /** What everybody in the room sees: messages, oldest first. */
  messages(room: RoomId): Promise<readonly RoomMessage[]>;
}

export interface RoomMessage {
  readonly event_id: string;
  readonly sender: string;
  readonly type: string;
  readonly content: Readonly<Record<string, unknown>>;
}

function bridgeSide(url: string, bridgeUrl: string) {
  return {
    appservice: {
      id: "drawbridge",
      url: bridgeUrl,
      senderLocalpart: "drawbridge",
      ghostPrefix: "agent_",
      asToken: { env: "UNUSED" },
      hsToken: { env: "UNUSED" },
    },
    homeserver: { serverName: SERVER_NAME, url, requestTimeout: 30_000 },
  };
}

/** Starts a Synapse, its PostgreSQL too unless the task runner shares one. */
export async function startSynapse(options: TestSynapseOptions = {}): Promise<TestSynapse> {
  const { python } = findPrograms();
  const directory = mkdtempSync(join(tmpdir(), "drawbridge-synapse-"));
  const shared = process.env[TEST_POSTGRES_URL];
  const postgres = shared ? undefined : await startTestServer();
  const adminUrl = shared || postgres?.url || "";
  const secret = () => systemRandom.bytes(24).toString("hex");
  const database = { name: `synapse_${systemRandom.bytes(6).toString("hex")}`, password: secret() };
  await createDatabases(adminUrl, [database]);

  const clientPort = await freePort();
  const bridgePort = await freePort();
  const url = `http://127.0.0.1:${clientPort}`;
  const config = bridgeSide(url, `http://127.0.0.1:${bridgePort}`);
  const tokens = { asToken: secret(), hsToken: secret() };
  const registrationFile = await options.register?.(url, bridgePort);
  const registrationSecret = secret();

  const write = (name: string, text: string) => {
    mkdirSync(dirname(join(directory, name)), { recursive: true });
    writeFileSync(join(directory, name), text, { mode: 0o600 });
  };
  mkdirSync(join(directory, HOMESERVER_FILES.media));
  write("registration.yaml", renderRegistration(config, tokens));
  write(HOMESERVER_FILES.registrationSecret, registrationSecret);
  write(HOMESERVER_FILES.macaroonSecret, secret());
  write(HOMESERVER_FILES.formSecret, secret());
  write(HOMESERVER_FILES.signingKey, freshSigningKey(systemRandom, "a_test"));
  const { allowedServers } = options;
  const border = {
    policyFile: join(directory, "policy.json"),
    violationsFile: join(directory, "violations.jsonl"),
    statusTokenFile: join(directory, "status-token"),
  };
  write("policy.json", JSON.stringify({ allowed_servers: [SERVER_NAME, ...(allowedServers ?? [])] }));
  write("status-token", secret());
  const rendered = renderHomeserver({
    serverName: SERVER_NAME,
    directory,
    clientPort,
    federation: undefined,
    database: {
      host: "127.0.0.1",
      port: Number(new URL(adminUrl).port),
      user: database.name,
      password: database.password,
      name: database.name,
    },
    registrationFiles: [registrationFile ?? join(directory, "registration.yaml")],
    ...(allowedServers !== undefined && { border }),
  });
  for (const [name, text] of Object.entries(rendered)) write(name, text);
  const federationPort = await freePort();
  if (options.federates === true) {
    const config = parse(rendered[HOMESERVER_FILES.config] ?? "") as { listeners: object[] };
    const [client = {}] = config.listeners;
    const resources = [{ names: ["federation"], compress: false }];
    config.listeners.push({ ...client, port: federationPort, resources });
    const opened = { ...config, federation_domain_whitelist: undefined };
    write(HOMESERVER_FILES.config, stringify(opened, { aliasDuplicateObjects: false }));
  }

  let child: ChildProcess | undefined;
  const start = async () => {
    child = await launch(python, directory, url);
  };
  const end = async (signal: "SIGTERM" | "SIGKILL" = "SIGTERM") => {
    const running = child;
    child = undefined;
    if (running === undefined || running.exitCode !== null) return;
    const ended = new Promise((resolve) => running.once("exit", resolve));
    running.kill(signal);
    await ended;
  };
  await start();
  const { port: databasePort } = new URL(adminUrl);
  return {
    url,
    federationUrl: `http://127.0.0.1:${federationPort}`,
    databaseUrl: `postgres://${database.name}:${database.password}@127.0.0.1:${databasePort}/${database.name}`,
    serverName: SERVER_NAME,
    ...tokens,
    bridge: { port: bridgePort },
    config,
    user: (name) => registerUser(url, registrationSecret, name),
    restart: async () => {
      await end();
      await start();
    },
    stop: () => end(),
    kill: () => end("SIGKILL"),
    start,
    freeze: () => {
      const frozen = child;
      frozen?.kill("SIGSTOP");
      return () => frozen?.kill("SIGCONT");
    },
    dispose: async () => {
      await end();
      await postgres?.stop();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

async function launch(python: string, directory: string, url: string): Promise<ChildProcess> {
  const logFile = join(directory, "synapse.log");
  const log = openSync(logFile, "a");
  const child = spawn(
    python,
    ["-m", "synapse.app.homeserver", "--config-path", join(directory, HOMESERVER_FILES.config)],
    {
      cwd: directory,
      env: { ...process.env, PYTHONPATH: join(ROOT, "border/src") },
      stdio: ["ignore", log, log],
    },
  );
  closeSync(log);
  const deadline = systemClock.now() + START_TIMEOUT_MS;
  while (systemClock.now() < deadline && child.exitCode === null) {
    try {
      if ((await fetch(`${url}/_matrix/client/versions`)).ok) return child;
    } catch {
      // Not listening yet.
    }
    await systemClock.sleep(50);
  }
  child.kill("SIGKILL");
  throw new Error(`Synapse does not start: ${readFileSync(logFile, "utf8").slice(-2_000)}`);
}

async function registerUser(url: string, secret: string, name: string): Promise<TestUser> {
  const endpoint = `${url}/_synapse/admin/v1/register`;
  const { nonce } = (await (await fetch(endpoint)).json()) as { nonce: string };
  const password = systemRandom.bytes(12).toString("hex");
  const mac = createHmac("sha1", secret).update([nonce, name, password, "notadmin"].join("\0")).digest("hex");
  const response = await fetch(endpoint, {
    method: "POST",
    body: JSON.stringify({ nonce, username: name, password, admin: false, mac }),
  });
  if (!response.ok) throw new Error(`registering ${name}: HTTP ${response.status}`);
  return userOf(url, password, (await response.json()) as Session);
}

export interface Session {
  readonly user_id: UserId;
  readonly access_token: string;
}

/** The person of a session at a homeserver. */
export function userOf(url: string, password: string, made: Session): TestUser {
  const call: TestUser["call"] = async (method, path, body) => {
    const answer = await fetch(`${url}/_matrix/client/v3${path}`, {
      method,
      headers: { authorization: `Bearer ${made.access_token}` },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const value = (await answer.json()) as Record<string, unknown>;
    if (!answer.ok) throw new Error(`${method} ${path}: HTTP ${answer.status} ${value["errcode"]}`);
    return value;
  };
  return {
    userId: made.user_id,
    accessToken: made.access_token,
    call,
    createRoom: async (options = {}) =>
      (await call("POST", "/createRoom", { preset: "private_chat", ...options }))["room_id"] as RoomId,
    messages: (room) => readMessages(call, room),
    logIn: async () => {
      const identifier = { type: "m.id.user", user: made.user_id };
      const session = await call("POST", "/login", { type: "m.login.password", identifier, password });
      return userOf(url, password, session as unknown as Session);
    },
  };
}

async function readMessages(call: TestUser["call"], room: RoomId): Promise<readonly RoomMessage[]> {
  const found: RoomMessage[] = [];
  let from: unknown;
  do {
    const page = await call(
      "GET",
      `/rooms/${encodeURIComponent(room)}/messages?dir=b&limit=500${typeof from === "string" ? `&from=${from}` : ""}`,
    );
    const chunk = page["chunk"] as RoomMessage[];
    found.push(...chunk.filter((event) => event.type === "m.room.message"));
    from = page["end"];
  } while (from !== undefined);
  return found.reverse();
}
