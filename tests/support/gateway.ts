// A real gateway for tests: its files from one value that tests like to write, Envoy run by `drawbridge gateway`, tokens by
// the real issuer's key, and agents that are test doubles or real ones.
import { once } from "node:events";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { importJWK, SignJWT } from "jose";
import { stringify } from "yaml";
import type * as z from "zod";
import { freePort } from "../../lab/ports.ts";
import { findPrograms } from "../../lab/programs.ts";
import { systemClock } from "../../src/domain/clock.ts";
import type { GatewayConfigFile } from "../../src/gateway/config.ts";
import { type AccessRules, mergeAccessRules } from "../../src/gateway/merge-access-files.ts";
import { loadIssuerConfig } from "../../src/issuer/config.ts";
import { generateSigningKeys, type SigningKeySet, startIssuer } from "../../src/issuer/server.ts";
import {
  GatewayState,
  InvocationFile,
  type InvokedAgent,
  PublicationFile,
  type PublishedCard,
} from "../../src/rendered-files/gateway-files.ts";
import { parseYaml } from "../../src/runtime/load-yaml.ts";
import { readIfPresent } from "../../src/runtime/write-file.ts";
import { recordedLog } from "./recorded-log.ts";
import { cliMain, type Running, start, writeFile } from "./temporary.ts";

/** An agent with its card and its callers; without `cardPath` its card is not public. */
export type AgentInput = Omit<z.input<typeof PublishedCard>, "cardPath"> & {
  readonly cardPath?: string;
} & z.input<typeof InvokedAgent>;

export interface AdmissionInput {
  readonly agents: Readonly<Record<string, AgentInput>>;
  readonly quotas: z.input<typeof InvocationFile>["quotas"];
}

export function admissionFiles({ agents, quotas }: AdmissionInput): {
  readonly publication: z.input<typeof PublicationFile>;
  readonly invocation: z.input<typeof InvocationFile>;
} {
  const all = Object.entries(agents);
  return {
    publication: {
      version: 1,
      cards: Object.fromEntries(
        all.flatMap(([name, { upstream, upstreamCardPath, cardPath }]) =>
          cardPath === undefined
            ? []
            : [[name, { upstream, cardPath, ...(upstreamCardPath && { upstreamCardPath }) }]],
        ),
      ),
    },
    invocation: {
      version: 1,
      agents: Object.fromEntries(
        all.map(([name, { cardPath: _, upstreamCardPath: __, ...invocation }]) => [name, invocation]),
      ),
      quotas,
    },
  };
}

/** @throws ConfigError as the gateway would */
export function testIntent(input: AdmissionInput): AccessRules {
  const { publication, invocation } = admissionFiles(input);
  const [cards, callers] = [stringify(publication), stringify(invocation)];
  return mergeAccessRules(
    {
      file: "publication.yaml",
      text: cards,
      value: parseYaml(PublicationFile, cards, "publication.yaml"),
    },
    { file: "invocation.yaml", text: callers, value: parseYaml(InvocationFile, callers, "invocation.yaml") },
  );
}

export const AUDIENCE = "https://agents.org-a.example";

/** All three files of a gateway in one value, as tests like to change them. */
export type GatewayInput = z.input<typeof GatewayConfigFile> & AdmissionInput;

type FileName = "gateway" | "publication" | "invocation";

export interface TestIssuer {
  readonly url: string;
  /** A token by the issuer's key; each claim and the header can be changed, `undefined` removes one. */
  token(azp: string | undefined, changes?: TokenChanges): Promise<string>;
  close(): Promise<void>;
}

export interface TokenChanges {
  readonly claims?: Readonly<Record<string, unknown>>;
  readonly header?: Readonly<Record<string, string>>;
  /** Another key than the issuer's. */
  readonly keys?: SigningKeySet;
}

/** The real issuer on a free port. Its tokens are made here, so that wrong ones can be made too. */
export async function testIssuer(folder: string): Promise<TestIssuer> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const keys = await generateSigningKeys();
  writeFile(join(folder, "issuer/keys.json"), JSON.stringify(keys), 0o600);
  writeFile(join(folder, "issuer/clients.yaml"), "version: 1\nclients: []\n");
  writeFile(
    join(folder, "issuer/issuer.yaml"),
    stringify({
      version: 1,
      listen: { port },
      url,
      audience: AUDIENCE,
      signingKeys: { file: "keys.json" },
    }),
  );
  const config = loadIssuerConfig(join(folder, "issuer/issuer.yaml"));
  const issuer = await startIssuer(config, recordedLog().log, systemClock);
  return {
    url,
    close: () => issuer.close(),
    token: async (azp, changes = {}) => {
      const [jwk] = (changes.keys ?? keys).keys;
      if (jwk === undefined) throw new Error("no key");
      const now = Math.floor(systemClock.now() / 1_000);
      const claims = { iss: url, aud: AUDIENCE, iat: now, exp: now + 300, azp, ...changes.claims };
      return new SignJWT(JSON.parse(JSON.stringify(claims)))
        .setProtectedHeader({ alg: "ES256", typ: "at+jwt", kid: jwk.kid, ...changes.header })
        .sign(await importJWK(jwk, "ES256"));
    },
  };
}

export interface Received {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

export interface AgentDouble {
  readonly url: string;
  /** What reached it, in order. */
  readonly received: Received[];
  close(): Promise<void>;
}

/** An agent that records what reaches it and answers as the test says. */
export async function agentDouble(
  answer: (request: Received, response: ServerResponse) => void | Promise<void> = (_, response) => {
    response.setHeader("content-type", "application/json").end("{}");
  },
): Promise<AgentDouble> {
  const received: Received[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += String(chunk);
    const { method = "", url = "", headers } = request;
    const entry = { method, url, headers, body };
    received.push(entry);
    await answer(entry, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    close: async () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

export interface TestGateway {
  readonly url: string;
  readonly folder: string;
  readonly running: Running;
  /** The gateway's own log so far. */
  log(): string;
  accessLog(): string;
  /** Replaces each of the three files whose content changes, in one step each. */
  configure(change: (config: GatewayInput) => GatewayInput): void;
  /** Replaces one of the files in one step. */
  configureText(file: FileName, text: string | Uint8Array): void;
  /** state.json, once it is there. */
  state(): GatewayState | undefined;
  /** The configuration as the test last wrote it. */
  config(): GatewayInput;
}

/** Starts `drawbridge gateway` and resolves when it serves. The caller ends it. */
export async function testGateway(folder: string, input: Partial<GatewayInput>): Promise<TestGateway> {
  const [port, adminPort] = [await freePort(), await freePort()];
  let config = {
    version: 1,
    listen: { port },
    adminPort,
    quotas: { default: { perMinute: 6_000, burst: 1_000 } },
    envoy: { binary: findPrograms().envoy },
    agents: {},
    ...input,
  } as GatewayInput;
  const file = join(folder, "gateway.yaml");
  const configureText: TestGateway["configureText"] = (name, text) => {
    const target = join(folder, `${name}.yaml`);
    mkdirSync(folder, { recursive: true });
    writeFileSync(`${target}.next`, text);
    renameSync(`${target}.next`, target);
  };
  const written = new Map<FileName, string>();
  const writeAll = () => {
    const { agents, quotas, ...gateway } = config;
    const files = { gateway, ...admissionFiles({ agents, quotas }) };
    for (const name of ["gateway", "publication", "invocation"] as const) {
      const text = stringify(files[name]);
      if (written.get(name) !== text) configureText(name, text);
      written.set(name, text);
    }
  };
  writeAll();
  let log = "";
  const running = start(process.execPath, [cliMain(), "gateway", "--config", file]);
  running.child.stdout?.on("data", (chunk: Buffer) => {
    log += chunk.toString();
  });
  await running.printed('"event":"ready"');
  return {
    url: `http${config.listen.tls ? "s" : ""}://127.0.0.1:${config.listen.port}`,
    folder,
    running,
    log: () => log,
    accessLog: () => readFileSync(join(folder, "access.jsonl"), "utf8"),
    configureText: (name, text) => {
      written.delete(name);
      configureText(name, text);
    },
    config: () => config,
    configure: (change) => {
      config = change(config);
      writeAll();
    },
    state: () => {
      const text = readIfPresent(join(folder, "state.json"));
      return text === undefined ? undefined : GatewayState.parse(JSON.parse(text));
    },
  };
}

export async function endGateway(gateway: TestGateway | undefined): Promise<void> {
  if (gateway === undefined) return;
  gateway.running.child.kill("SIGTERM");
  await gateway.running.finished;
}

/** Polls until `poll` gives something; for what a real server does in its own time. */
export async function eventually<T>(
  what: string,
  poll: () => Promise<T | undefined> | T | undefined,
): Promise<T> {
  const deadline = systemClock.now() + 15_000;
  for (;;) {
    const found = await poll();
    if (found !== undefined) return found;
    if (systemClock.now() > deadline) throw new Error(`did not come: ${what}`);
    await systemClock.sleep(20);
  }
}
