// A realm of its own in a running Keycloak, whose address `./task test:keycloak` passes on.
import { join } from "node:path";
import { systemClock, systemRandom } from "../../../src/domain/clock.ts";
import { keycloakAdapter } from "../../../src/federation/planes/gateway/issuer-keycloak.ts";
import { writeFile } from "../temporary.ts";
import { AUDIENCE, askForToken, type IssuerUnderTest } from "./contract.ts";

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
      systemClock,
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
    putSecret: (name, value) => writeFile(join(folder, "secrets", name), `${value}\n`, 0o600),
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
