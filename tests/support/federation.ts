// A few real Synapses that federate on this machine, each with the border module if asked for: for tests of
// what one plane closes. Their configuration is rendered by the lab's code; names resolve through a proxy of
// the test's own. Invariants: one database server for all; everything is gone after `dispose`.
import { type ChildProcess, spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { openAuthority } from "../../lab/configuration/certificates.ts";
import { createDatabases } from "../../lab/configuration/databases.ts";
import { HOMESERVER_FILES, renderHomeserver } from "../../lab/configuration/synapse-config.ts";
import { freePort } from "../../lab/ports.ts";
import { findPrograms } from "../../lab/programs.ts";
import { ConnectProxy } from "../../lab/supervisor/connect-proxy.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { RoomId, ServerName, UserId } from "../../src/domain/identifiers.ts";
import { freshSigningKey } from "../../src/federation/homeserver/signed-request.ts";
import { writeWhole } from "../../src/runtime/write-file.ts";
import { ROOT } from "./temporary.ts";
import { startTestServer, TEST_POSTGRES_URL } from "./test-server.ts";

const START_TIMEOUT_MS = 120_000;
const PYTHON_FOLDERS = [join(ROOT, "border/src"), join(ROOT, "tests/support/python")];

export interface FederatedServer {
  readonly name: ServerName;
  readonly url: string;
  readonly directory: string;
  /** Content of its signing key file. */
  readonly signingKey: string;
  readonly proxyUrl: string;
  readonly caFile: string;
  /** Its own role at its own database. */
  readonly databaseUrl: string;
  /** Read beside homeserver.yaml at each start; absent until a test writes it. */
  readonly includeFile: string;
  /** Files of the border module. */
  readonly border: {
    readonly policyFile: string;
    readonly violationsFile: string;
    readonly statusTokenFile: string;
  };
  /** What it has logged. */
  log(): string;
  pid(): number;
  user(name: string, admin?: boolean): Promise<FederatedUser>;
  stop(): Promise<void>;
  /** Loads another class than the border module's own, of tests/support/python; at its next start. */
  loadBorder(className: string): void;
  start(): Promise<void>;
}

/** What a homeserver said to a person's client. */
export interface ClientAnswer {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
}

export interface FederatedUser {
  readonly userId: UserId;
  readonly accessToken: string;
  request(method: string, path: string, body?: unknown): Promise<ClientAnswer>;
  /** The same; throws for anything but a success. */
  call(method: string, path: string, body?: unknown): Promise<Readonly<Record<string, unknown>>>;
  createRoom(options?: Readonly<Record<string, unknown>>): Promise<RoomId>;
  join(room: RoomId, ...via: readonly ServerName[]): Promise<ClientAnswer>;
  /** Sends a text message and returns its event ID. */
  say(room: RoomId, text: string): Promise<string>;
  /** Texts of the messages this user sees in a room, oldest first. */
  heard(room: RoomId): Promise<readonly string[]>;
}

export interface Federation<Name extends string> {
  readonly servers: Readonly<Record<Name, FederatedServer>>;
  dispose(): Promise<void>;
}

export interface FederationOptions {
  /** Servers that load the border module with this policy (text of policy.json, by server name of all). */
  readonly border?: Readonly<Record<string, (names: Readonly<Record<string, ServerName>>) => string>>;
  /** Servers with an application service, by the text of its registration file. */
  readonly registration?: Readonly<Record<string, string>>;
  /** An administrator's URL of a database server that is there already. */
  readonly postgresUrl?: string;
}

/** Starts one Synapse for each name; their server names are `NAME.test:PORT`. */
export async function startFederation<Name extends string>(
  names: readonly Name[],
  options: FederationOptions = {},
): Promise<Federation<Name>> {
  const { python } = findPrograms();
  const root = mkdtempSync(join(tmpdir(), "drawbridge-federation-"));
  const shared = options.postgresUrl ?? process.env[TEST_POSTGRES_URL];
  const postgres = shared ? undefined : await startTestServer();
  const adminUrl = shared || postgres?.url || "";
  const sources = { clock: systemClock, random: systemRandom };
  const caFile = join(root, "ca.pem");
  const authority = await openAuthority({ certificate: caFile, privateKey: join(root, "ca.key") }, sources);

  const places = new Map<Name, { client: number; federation: number; proxy: number; name: ServerName }>();
  for (const name of names) {
    const [client, federation, proxy] = [await freePort(), await freePort(), await freePort()];
    places.set(name, { client, federation, proxy, name: `${name}.test:${federation}` as ServerName });
  }
  const serverNames = Object.fromEntries([...places].map(([name, place]) => [name, place.name]));
  const proxy = new ConnectProxy<Name>({
    ports: Object.fromEntries([...places].map(([name, place]) => [name, place.proxy])) as Record<
      Name,
      number
    >,
    servers: new Map(
      [...places].map(([name, place]) => [place.name, { organisation: name, port: place.federation }]),
    ),
  });
  await proxy.listen();

  const make = async (name: Name): Promise<FederatedServer> => {
    const place = places.get(name);
    if (place === undefined) throw new Error(`no place for ${name}`);
    const directory = join(root, name);
    const write = (file: string, text: string) => {
      mkdirSync(dirname(join(directory, file)), { recursive: true });
      writeFileSync(join(directory, file), text, { mode: 0o600 });
    };
    const secret = () => systemRandom.bytes(24).toString("hex");
    const database = { name: `synapse_${systemRandom.bytes(6).toString("hex")}`, password: secret() };
    await createDatabases(adminUrl, [database]);
    const registrationSecret = secret();
    const signingKey = freshSigningKey(systemRandom, "a_test");
    const border = {
      policyFile: join(directory, "border/policy.json"),
      violationsFile: join(directory, "violations.jsonl"),
      statusTokenFile: join(directory, "secrets/status-token"),
    };
    const policy = options.border?.[name];
    const registration = options.registration?.[name];
    const certificate = await authority.issue(`${name}.test`);
    mkdirSync(join(directory, HOMESERVER_FILES.media), { recursive: true });
    write(HOMESERVER_FILES.registrationSecret, registrationSecret);
    write(HOMESERVER_FILES.macaroonSecret, secret());
    write(HOMESERVER_FILES.formSecret, secret());
    write(HOMESERVER_FILES.signingKey, signingKey);
    write(HOMESERVER_FILES.certificate, certificate.certificate);
    write(HOMESERVER_FILES.privateKey, certificate.privateKey);
    write("secrets/status-token", secret());
    mkdirSync(dirname(border.policyFile), { recursive: true });
    if (registration !== undefined) write("registration.yaml", registration);
    if (policy !== undefined) writeWhole(border.policyFile, policy(serverNames), 0o644);
    const rendered = renderHomeserver({
      serverName: place.name,
      directory,
      clientPort: place.client,
      federation: {
        port: place.federation,
        proxyUrl: `http://127.0.0.1:${place.proxy}`,
        caFile,
        allow: undefined,
      },
      database: {
        host: "127.0.0.1",
        port: Number(new URL(adminUrl).port),
        user: database.name,
        password: database.password,
        name: database.name,
      },
      registrationFiles: registration === undefined ? [] : [join(directory, "registration.yaml")],
      ...(policy !== undefined && { border }),
    });
    for (const [file, text] of Object.entries(rendered)) write(file, text);

    const url = `http://127.0.0.1:${place.client}`;
    const includeFile = join(directory, "include/transport.yaml");
    const program = new HomeserverProgram(python, directory, url, includeFile);
    await program.start();
    return {
      name: place.name,
      url,
      directory,
      signingKey,
      proxyUrl: `http://127.0.0.1:${place.proxy}`,
      caFile,
      databaseUrl: `postgres://${database.name}:${database.password}@127.0.0.1:${new URL(adminUrl).port}/${database.name}`,
      includeFile,
      border,
      log: () => readFileSync(program.logFile, "utf8"),
      pid: () => program.pid(),
      user: (localpart, admin = false) => registerUser(url, registrationSecret, localpart, admin),
      stop: () => program.stop(),
      loadBorder: (className) => {
        const file = join(directory, HOMESERVER_FILES.config);
        const text = readFileSync(file, "utf8");
        writeFileSync(file, text.replace(/module: \S+_border\.\S+/, `module: ${className}`), { mode: 0o600 });
      },
      start: () => program.start(),
    };
  };

  const dispose = async (made: readonly FederatedServer[]) => {
    await Promise.all(made.map((server) => server.stop()));
    await proxy.close();
    await postgres?.stop();
    rmSync(root, { recursive: true, force: true });
  };
  const started = await Promise.allSettled(names.map(make));
  const made = started.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  const failure = started.find((one) => one.status === "rejected");
  if (failure !== undefined) {
    await dispose(made);
    throw failure.reason;
  }
  return {
    servers: Object.fromEntries(names.map((name, index) => [name, made[index]])) as Record<
      Name,
      FederatedServer
    >,
    dispose: () => dispose(made),
  };
}

class HomeserverProgram {
  readonly #python: string;
  readonly #directory: string;
  readonly #url: string;
  readonly #includeFile: string;
  readonly logFile: string;
  #child: ChildProcess | undefined;

  constructor(python: string, directory: string, url: string, includeFile: string) {
    this.#python = python;
    this.#directory = directory;
    this.#url = url;
    this.#includeFile = includeFile;
    this.logFile = join(directory, "synapse.log");
    mkdirSync(dirname(includeFile), { recursive: true });
  }

  pid(): number {
    if (this.#child?.pid === undefined) throw new Error("Synapse does not run");
    return this.#child.pid;
  }

  async start(): Promise<void> {
    const log = openSync(this.logFile, "a");
    const child = spawn(
      this.#python,
      [
        "-m",
        "synapse.app.homeserver",
        "--config-path",
        join(this.#directory, HOMESERVER_FILES.config),
        "--config-path",
        dirname(this.#includeFile),
      ],
      {
        cwd: this.#directory,
        stdio: ["ignore", log, log],
        env: {
          ...process.env,
          PYTHONPATH: [...PYTHON_FOLDERS, process.env["PYTHONPATH"]].filter(Boolean).join(delimiter),
        },
      },
    );
    closeSync(log);
    this.#child = child;
    const deadline = systemClock.now() + START_TIMEOUT_MS;
    while (systemClock.now() < deadline && child.exitCode === null) {
      try {
        if ((await fetch(`${this.#url}/_matrix/client/versions`)).ok) return;
      } catch {
        // Not listening yet.
      }
      await systemClock.sleep(50);
    }
    child.kill("SIGKILL");
    throw new Error(`Synapse does not start: ${readFileSync(this.logFile, "utf8").slice(-2_000)}`);
  }

  async stop(): Promise<void> {
    const running = this.#child;
    this.#child = undefined;
    if (running === undefined || running.exitCode !== null) return;
    const ended = new Promise((resolve) => running.once("exit", resolve));
    running.kill("SIGTERM");
    await ended;
  }
}

async function registerUser(
  url: string,
  secret: string,
  name: string,
  admin: boolean,
): Promise<FederatedUser> {
  const endpoint = `${url}/_synapse/admin/v1/register`;
  const { nonce } = (await (await fetch(endpoint)).json()) as { nonce: string };
  const password = systemRandom.bytes(12).toString("hex");
  const role = admin ? "admin" : "notadmin";
  const mac = createHmac("sha1", secret).update([nonce, name, password, role].join("\0")).digest("hex");
  const response = await fetch(endpoint, {
    method: "POST",
    body: JSON.stringify({ nonce, username: name, password, admin, mac }),
  });
  if (!response.ok) throw new Error(`registering ${name}: HTTP ${response.status}`);
  const made = (await response.json()) as { user_id: UserId; access_token: string };
  return personAt(url, made.user_id, made.access_token);
}

/** A person at a homeserver, by a token that it gave out. */
export function personAt(url: string, userId: UserId, accessToken: string): FederatedUser {
  return new Person(url, userId, accessToken);
}

class Person implements FederatedUser {
  readonly #url: string;
  readonly userId: UserId;
  readonly accessToken: string;

  constructor(url: string, userId: UserId, accessToken: string) {
    this.#url = url;
    this.userId = userId;
    this.accessToken = accessToken;
  }

  async request(method: string, path: string, body?: unknown): Promise<ClientAnswer> {
    const answer = await fetch(`${this.#url}/_matrix/client/v3${path}`, {
      method,
      headers: { authorization: `Bearer ${this.accessToken}` },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  }

  async call(method: string, path: string, body?: unknown): Promise<Readonly<Record<string, unknown>>> {
    const answer = await this.request(method, path, body);
    if (answer.status !== 200) {
      throw new Error(
        `${method} ${path}: HTTP ${answer.status} ${answer.body["errcode"]} ${answer.body["error"]}`,
      );
    }
    return answer.body;
  }

  async createRoom(options: Readonly<Record<string, unknown>> = {}): Promise<RoomId> {
    return (await this.call("POST", "/createRoom", { preset: "public_chat", ...options }))[
      "room_id"
    ] as RoomId;
  }

  join(room: RoomId, ...via: readonly ServerName[]): Promise<ClientAnswer> {
    const query = via.map(
      (server) => `via=${encodeURIComponent(server)}&server_name=${encodeURIComponent(server)}`,
    );
    return this.request("POST", `/join/${encodeURIComponent(room)}?${query.join("&")}`, {});
  }

  async say(room: RoomId, text: string): Promise<string> {
    const transaction = systemRandom.bytes(8).toString("hex");
    const sent = await this.call(
      "PUT",
      `/rooms/${encodeURIComponent(room)}/send/m.room.message/${transaction}`,
      {
        msgtype: "m.text",
        body: text,
      },
    );
    return sent["event_id"] as string;
  }

  async heard(room: RoomId): Promise<readonly string[]> {
    const page = await this.call("GET", `/rooms/${encodeURIComponent(room)}/messages?dir=b&limit=200`);
    return (page["chunk"] as { type: string; content: { body?: unknown } }[])
      .filter(({ type, content }) => type === "m.room.message" && typeof content.body === "string")
      .map(({ content }) => content.body as string)
      .reverse();
  }
}

/** Asks again until the answer satisfies, against real servers whose time cannot be moved. */
export async function until<Value>(
  what: string,
  ask: () => Promise<Value>,
  isEnough: (value: Value) => boolean,
  withinMs = 20_000,
): Promise<Value> {
  for (const deadline = systemClock.now() + withinMs; ; await systemClock.sleep(50)) {
    const value = await ask();
    if (isEnough(value)) return value;
    if (systemClock.now() > deadline) throw new Error(`${what} did not come about: ${JSON.stringify(value)}`);
  }
}
