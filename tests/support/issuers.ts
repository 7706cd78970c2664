// The two issuers under one contract: what the contract test needs of an issuer, the one-machine issuer with its
// clients.yaml, and a realm of its own in a running Keycloak.

import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import type * as z from "zod";
import { freePort } from "../../lab/ports.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import {
  declaredClientsAdapter,
  type IssuerAdapter,
  type IssuerIntent,
  keycloakAdapter,
} from "../../src/federation/planes/gateway/issuers.ts";
import { loadIssuerConfig } from "../../src/issuer/config.ts";
import { generateSigningKeys, startIssuer } from "../../src/issuer/server.ts";
import { ClientsFile } from "../../src/rendered-files/issuer-clients.ts";
import { parseYaml } from "../../src/runtime/load-yaml.ts";
import { recordedLog } from "./recorded-log.ts";
import { writeFile } from "./temporary.ts";

export const AUDIENCE = "https://agents.org-a.example";
export const OWNER = "org-a.example";

export interface TokenAnswer {
  readonly status: number;
  /** The `error` of a refusal. */
  readonly error: string | undefined;
  readonly token: string;
}

export interface IssuerUnderTest {
  readonly adapter: IssuerAdapter;
  /** The `iss` of its tokens, and where its keys are. */
  readonly url: string;
  readonly jwksUrl: string;
  /** Asks for a token by client credentials. */
  ask(clientId: string, secret: string): Promise<TokenAnswer>;
  /** A token of this client that lives two seconds. */
  shortLived(clientId: string, secret: string): Promise<string>;
  /** Puts a secret where references of clients find it: `{file: client-secrets/NAME}`. */
  putSecret(name: string, value: string): void;
  /** Somebody enables or disables a client beside the registry. */
  setByHand(clientId: string, enabled: boolean): Promise<void>;
  /** The issuer's answer to a known client with a wrong secret. */
  readonly wrongSecret: string;
  close(): Promise<void>;
}

/** The intent that a clients.yaml stands for. */
export function intentOf(clients: z.input<typeof ClientsFile>["clients"]): IssuerIntent {
  const text = stringify({ version: 1, clients });
  return { owner: OWNER, text, clients: parseYaml(ClientsFile, text, "clients.yaml").clients };
}

/** @param endpoint the token endpoint */
export async function askForToken(endpoint: string, clientId: string, secret: string): Promise<TokenAnswer> {
  const response = await fetch(endpoint, {
    method: "POST",
    // Kept open, it could be one that the issuer closes as it starts anew.
    headers: {
      connection: "close",
      authorization: `Basic ${Buffer.from(`${clientId}:${secret}`).toString("base64")}`,
    },
    body: new URLSearchParams({ grant_type: "client_credentials" }),
  });
  const { error, access_token: token } = (await response.json()) as Readonly<Record<string, unknown>>;
  return {
    status: response.status,
    error: typeof error === "string" ? error : undefined,
    token: typeof token === "string" ? token : "",
  };
}

export async function declaredIssuer(folder: string): Promise<IssuerUnderTest> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const clientsFile = join(folder, "clients.yaml");
  writeFile(join(folder, "keys.json"), JSON.stringify(await generateSigningKeys()), 0o600);
  writeFile(clientsFile, "version: 1\nclients: []\n");
  const start = (lifespan: string) => {
    const file = join(folder, "issuer.yaml");
    const config = {
      version: 1,
      listen: { port },
      url,
      audience: AUDIENCE,
      accessTokenLifespan: lifespan,
      signingKeys: { file: "keys.json" },
    };
    writeFile(file, stringify(config));
    return startIssuer(loadIssuerConfig(file), recordedLog().log, systemClock);
  };
  let issuer = await start("300s");
  const restart = async (lifespan: string) => {
    await issuer.close();
    issuer = await start(lifespan);
  };
  const ask: IssuerUnderTest["ask"] = (clientId, secret) => askForToken(`${url}/token`, clientId, secret);
  return {
    adapter: declaredClientsAdapter(join(folder, "clients.yaml")),
    url,
    jwksUrl: `${url}/jwks`,
    wrongSecret: "invalid_client",
    ask,
    shortLived: async (clientId, secret) => {
      await restart("2s");
      const { token } = await ask(clientId, secret);
      await restart("300s");
      return token;
    },
    putSecret: (name, value) => writeFile(join(folder, "client-secrets", name), `${value}\n`, 0o600),
    setByHand: async (clientId, enabled) => {
      const file = parse(readFileSync(clientsFile, "utf8")) as ClientsFile;
      const clients = file.clients.map((client) =>
        client.clientId === clientId ? { ...client, enabled } : client,
      );
      writeFileSync(`${clientsFile}.hand`, stringify({ ...file, clients }));
      renameSync(`${clientsFile}.hand`, clientsFile);
    },
    close: () => issuer.close(),
  };
}

const ADMIN_CLIENT = "drawbridge-control";

/** Base URL of the Keycloak under test; undefined outside `./task test:keycloak`. */
export const KEYCLOAK_URL = process.env["DRAWBRIDGE_TEST_KEYCLOAK"];

export interface KeycloakUnderTest extends IssuerUnderTest {
  readonly realm: string;
  readonly adminSecret: string;
  /** The Admin API as the server's own administrator, below the realm. */
  admin(method: string, path: string, body?: unknown): Promise<{ status: number; body: unknown }>;
  /** The client as Keycloak holds it; undefined when there is none. */
  client(clientId: string): Promise<Readonly<Record<string, unknown>> | undefined>;
}

/** Makes a realm, and in it a service account that may manage clients and nothing else. */
export async function keycloakIssuer(folder: string): Promise<KeycloakUnderTest> {
  const base = KEYCLOAK_URL ?? "";
  const realm = `realm-${systemRandom.bytes(4).toString("hex")}`;
  const adminSecret = systemRandom.bytes(16).toString("hex");
  const request = async (method: string, path: string, body?: unknown) => {
    const response = await fetch(`${base}/admin/realms${path}`, {
      method,
      headers: {
        authorization: `Bearer ${await administratorToken(base)}`,
        "content-type": "application/json",
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, body: text === "" ? undefined : (JSON.parse(text) as unknown) };
  };
  const admin = (method: string, path: string, body?: unknown) => request(method, `/${realm}/${path}`, body);
  await request("POST", "", {
    realm,
    enabled: true,
    sslRequired: "none",
    accessTokenLifespan: 300,
    defaultSignatureAlgorithm: "ES256",
  });
  await admin("POST", "clients", {
    clientId: ADMIN_CLIENT,
    secret: adminSecret,
    publicClient: false,
    serviceAccountsEnabled: true,
    standardFlowEnabled: false,
  });
  const client = async (clientId: string) => {
    const { body } = await admin("GET", `clients?clientId=${clientId}`);
    return (body as Readonly<Record<string, unknown>>[])[0];
  };
  const idOf = async (clientId: string) => String((await client(clientId))?.["id"]);
  const account = (await admin("GET", `clients/${await idOf(ADMIN_CLIENT)}/service-account-user`)).body;
  const management = await idOf("realm-management");
  const role = (await admin("GET", `clients/${management}/roles/manage-clients`)).body;
  await admin("POST", `users/${(account as { id: string }).id}/role-mappings/clients/${management}`, [role]);

  writeFile(join(folder, "secrets", "admin"), `${adminSecret}\n`, 0o600);
  const put = async (clientId: string, change: unknown) =>
    await admin("PUT", `clients/${await idOf(clientId)}`, change);
  const ask: IssuerUnderTest["ask"] = (clientId, secret) =>
    askForToken(`${base}/realms/${realm}/protocol/openid-connect/token`, clientId, secret);
  return {
    adapter: keycloakAdapter(
      {
        adapter: "keycloak",
        url: base,
        realm,
        adminRealm: realm,
        adminClientId: ADMIN_CLIENT,
        adminClientSecret: { file: "secrets/admin" },
        audience: AUDIENCE,
        secretsDirectory: ".",
      },
      folder,
    ),
    realm,
    adminSecret,
    url: `${base}/realms/${realm}`,
    jwksUrl: `${base}/realms/${realm}/protocol/openid-connect/certs`,
    wrongSecret: "unauthorized_client",
    ask,
    admin,
    client,
    shortLived: async (clientId, secret) => {
      await put(clientId, { attributes: { "access.token.lifespan": "2" } });
      const { token } = await ask(clientId, secret);
      await put(clientId, { attributes: { "access.token.lifespan": "300" } });
      return token;
    },
    putSecret: (name, value) => writeFile(join(folder, "client-secrets", name), `${value}\n`, 0o600),
    setByHand: async (clientId, enabled) => {
      await put(clientId, { enabled });
    },
    close: async () => {
      await request("DELETE", `/${realm}`);
    },
  };
}

async function administratorToken(base: string): Promise<string> {
  const response = await fetch(`${base}/realms/master/protocol/openid-connect/token`, {
    method: "POST",
    body: new URLSearchParams({
      grant_type: "password",
      client_id: "admin-cli",
      username: "admin",
      password: process.env["DRAWBRIDGE_TEST_KEYCLOAK_PASSWORD"] ?? "",
    }),
  });
  return String(((await response.json()) as { access_token?: unknown }).access_token);
}
