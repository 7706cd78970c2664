// Keycloak as the issuer of declared clients. Invariants: clients are closed before anything else is done; a client is
// enabled only together with its declared secret and settings; closing needs no secret; a client that was there before
// is taken over when it is declared, and never deleted; what was done is read back.
import { resolve } from "node:path";
import { z } from "zod";
import { DrawbridgeError, undefinedFor } from "../../../domain/errors.ts";
import { readRegistrySecret } from "../../../runtime/secrets.ts";
import type { Drift } from "../plane.ts";
import type { IssuedClient, IssuerAdapter, IssuerFailures, IssuerIntent } from "./issuer-adapter.ts";
import {
  BASIC_SCOPE,
  clientDigest,
  clientSettings,
  extraMappers,
  extraScopes,
  hasSettings,
  isAdopted,
  isOwnedBy,
  KeycloakAdmin,
  KeycloakClient,
  type KeycloakTarget,
  newClient,
  ownerOf,
} from "./keycloak-admin.ts";

const PAGE = 500;
/** In every realm: a partner of such a name would take the console from its administrators. */
const KEYCLOAKS_OWN = [
  "account",
  "account-console",
  "admin-cli",
  "broker",
  "realm-management",
  "security-admin-console",
];
const ClientPage = z.array(KeycloakClient);
const ScopeList = z.array(z.object({ id: z.string().min(1), name: z.string() }));

export class Keycloak implements IssuerAdapter {
  readonly #admin: KeycloakAdmin;
  readonly #audience: string;
  readonly #secretsFolder: string;
  /** Clients that are never touched, also when the registry declares them: Keycloak's, and the one that we act as. */
  readonly #foreign: ReadonlySet<string>;

  constructor(target: KeycloakTarget, directory: string) {
    const { realm, adminRealm, adminClientId, audience, secretsDirectory } = target;
    this.#admin = new KeycloakAdmin(target, directory);
    this.#audience = audience;
    this.#secretsFolder = resolve(directory, secretsDirectory);
    this.#foreign = new Set([...KEYCLOAKS_OWN, ...(realm === adminRealm ? [adminClientId] : [])]);
  }

  async read(): Promise<ReadonlyMap<string, { readonly enabled: boolean }>> {
    return new Map([...(await this.#list())].map(([clientId, { enabled }]) => [clientId, { enabled }]));
  }

  async apply(intent: IssuerIntent) {
    const before = await this.#list();
    const failures: IssuerFailures = new Map();
    let changed = false;
    const attempt = async (clientId: string, work: () => Promise<boolean>) => {
      if (await work()) changed = true;
      else failures.set(clientId, "issuer_refused");
    };

    const isForeign = ({ clientId }: IssuedClient) => this.#foreign.has(clientId);
    for (const { clientId } of intent.clients.filter(isForeign)) failures.set(clientId, "issuer_refused");
    const clients = intent.clients.filter((client) => !isForeign(client));
    for (const client of clients) {
      const found = before.get(client.clientId);
      if (client.enabled || found === undefined || isClosed(found, intent)) continue;
      await attempt(client.clientId, () => this.#close(found, intent));
    }
    for (const found of leftOver(before, intent)) {
      await attempt(found.clientId, () =>
        isAdopted(found) ? this.#close(found, intent) : this.#ok("DELETE", `clients/${found.id}`),
      );
    }
    for (const client of clients) {
      if (!client.enabled) continue;
      const secret = this.#readSecret(client);
      if (secret === undefined) {
        failures.set(client.clientId, "secret_unavailable");
        continue;
      }
      const found = before.get(client.clientId);
      if (found !== undefined && this.#isRight(found, secret, intent)) continue;
      await attempt(client.clientId, () =>
        found === undefined
          ? this.#ok("POST", "clients", newClient(client.clientId, intent.owner, this.#audience, secret))
          : this.#setRight(found, secret, intent),
      );
    }
    for (const { subject } of changed ? await this.drift(intent) : []) {
      if (!failures.has(subject)) failures.set(subject, "issuer_refused");
    }
    return { changed, failures };
  }

  async drift(intent: IssuerIntent): Promise<readonly Omit<Drift, "plane">[]> {
    const found = await this.#list();
    const declared = intent.clients.flatMap((client) => {
      const drift = this.#driftOf(client, found.get(client.clientId), intent);
      return drift === undefined ? [] : [drift];
    });
    const extra = leftOver(found, intent).map((client) => ({
      subject: client.clientId,
      kind: isAdopted(client) ? "enabled" : "extra",
      found: clientDigest(client, false),
    }));
    return [...declared, ...extra];
  }

  #driftOf(
    client: IssuedClient,
    found: KeycloakClient | undefined,
    intent: IssuerIntent,
  ): Omit<Drift, "plane"> | undefined {
    const subject = client.clientId;
    if (!client.enabled) {
      // Closed: nobody has a token by it, so what else it is does not count.
      if (found === undefined || isClosed(found, intent)) return undefined;
      return { subject, kind: found.enabled ? "enabled" : "edited", found: clientDigest(found, false) };
    }
    if (found === undefined) return { subject, kind: "missing", found: null };
    const secret = this.#readSecret(client);
    const hasSecret = secret !== undefined && found.secret === secret;
    if (hasSecret && this.#isRight(found, secret, intent)) return undefined;
    return { subject, kind: found.enabled ? "edited" : "disabled", found: clientDigest(found, hasSecret) };
  }

  #isRight(found: KeycloakClient, secret: string, { owner }: IssuerIntent): boolean {
    const isSet = hasSettings(found, this.#audience) && isOwnedBy(found, owner);
    return found.enabled && found.secret === secret && isSet;
  }

  #close(found: KeycloakClient, { owner }: IssuerIntent): Promise<boolean> {
    return this.#put(found, { enabled: false, attributes: ownerOf(found, owner) });
  }

  /** Scopes and mappers first: with them wrong, a client that is enabled would have wrong tokens. */
  async #setRight(found: KeycloakClient, secret: string, { owner }: IssuerIntent): Promise<boolean> {
    const at = `clients/${found.id}`;
    let ok = true;
    for (const mapper of extraMappers(found)) {
      ok = (await this.#ok("DELETE", `${at}/protocol-mappers/models/${mapper}`)) && ok;
    }
    for (const [kind, extra] of [
      ["default-client-scopes", extraScopes(found.defaultClientScopes)],
      ["optional-client-scopes", found.optionalClientScopes],
    ] as const) {
      if (extra.length === 0) continue;
      for (const { id, name } of await this.#scopes(`${at}/${kind}`)) {
        if (extra.includes(name)) ok = (await this.#ok("DELETE", `${at}/${kind}/${id}`)) && ok;
      }
    }
    if (!found.defaultClientScopes.includes(BASIC_SCOPE)) {
      const basic = (await this.#scopes("client-scopes")).find(({ name }) => name === BASIC_SCOPE);
      ok = basic !== undefined && (await this.#ok("PUT", `${at}/default-client-scopes/${basic.id}`)) && ok;
    }
    return ok && (await this.#put(found, clientSettings(this.#audience, secret, ownerOf(found, owner))));
  }

  #put({ id }: KeycloakClient, body: unknown): Promise<boolean> {
    return this.#ok("PUT", `clients/${id}`, body);
  }

  async #ok(method: "POST" | "PUT" | "DELETE", path: string, body?: unknown): Promise<boolean> {
    const { status } = await this.#admin.call(method, path, body);
    return status >= 200 && status < 300;
  }

  async #scopes(path: string) {
    return ScopeList.safeParse((await this.#admin.call("GET", path)).body).data ?? [];
  }

  async #list(): Promise<ReadonlyMap<string, KeycloakClient>> {
    const found = new Map<string, KeycloakClient>();
    for (let first = 0; ; first += PAGE) {
      const { status, body } = await this.#admin.call("GET", `clients?first=${first}&max=${PAGE}`);
      const page = ClientPage.safeParse(body);
      if (status !== 200 || !page.success) {
        throw new DrawbridgeError("issuer_unavailable", `Keycloak does not list its clients: ${status}`, {
          hint: "See that gateway.issuer.realm exists, and that Keycloak is of version 26.",
        });
      }
      for (const client of page.data) found.set(client.clientId, client);
      if (page.data.length < PAGE) return found;
    }
  }

  #readSecret({ secret }: IssuedClient): string | undefined {
    try {
      return secret && readRegistrySecret(secret, this.#secretsFolder);
    } catch (error) {
      return undefinedFor()(error);
    }
  }
}

/** Closed, and marked as the organisation's own, so that it is still looked after when it is declared no more. */
function isClosed(found: KeycloakClient, { owner }: IssuerIntent): boolean {
  return !found.enabled && isOwnedBy(found, owner);
}

/** The organisation's clients that it declares no more, but for those that were adopted and are disabled. */
function leftOver(
  found: ReadonlyMap<string, KeycloakClient>,
  { owner, clients }: IssuerIntent,
): KeycloakClient[] {
  const declared = new Set(clients.map(({ clientId }) => clientId));
  return [...found.values()].filter(
    (client) =>
      isOwnedBy(client, owner) && !declared.has(client.clientId) && (client.enabled || !isAdopted(client)),
  );
}
