// The issuer as plane 5 needs it: the one-machine issuer and Keycloak. Invariants: clients are closed before any is opened
// or changed, which needs no secret; a client is enabled only together with its declared secret and settings, and read
// back; one that cannot be brought to its state is named with a reason and holds up no other; one that was there before
// is taken over when it is declared, and never deleted; no secret is revealed.
import { resolve } from "node:path";
import * as z from "zod";
import { DrawbridgeError, undefinedFor } from "../../../domain/errors.ts";
import { ClientsFile } from "../../../rendered-files/issuer-clients.ts";
import { parseYaml } from "../../../runtime/load-yaml.ts";
import { readRegistrySecret } from "../../../runtime/secrets.ts";
import { readIfPresent } from "../../../runtime/write-file.ts";
import { applyFile, fileDrift } from "../file-target.ts";
import type { Drift } from "../plane.ts";
import * as keycloak from "./keycloak-admin.ts";

type KeycloakClient = keycloak.KeycloakClient;
type IssuedClient = ClientsFile["clients"][number];

export interface IssuerIntent {
  readonly owner: string;
  readonly clients: readonly IssuedClient[];
  readonly text: string;
}

/** Clients that are not in their declared state, and why: no secret can be read here, or the issuer does not take them. */
type IssuerFailures = Map<string, "secret_unavailable" | "issuer_refused">;

export interface IssuerAdapter {
  /** Brings the issuer to these clients and reads them back. @throws DrawbridgeError `issuer_unavailable` */
  apply(intent: IssuerIntent): Promise<{ readonly changed: boolean; readonly failures: IssuerFailures }>;
  /** The issuer's clients by ID, and whether each can have a token. @throws DrawbridgeError `issuer_unavailable` */
  read(): Promise<ReadonlyMap<string, { readonly enabled: boolean }>>;
  /** Kinds: `missing`, `extra`, `enabled` (against the registry), `disabled`, `edited`. @throws as `read` does */
  drift(intent: IssuerIntent): Promise<readonly Drift[]>;
}

/** The one-machine issuer, which reads clients.yaml at each token request, so that a whole file is in force at once. */
export function declaredClientsAdapter(target: string): IssuerAdapter {
  return {
    apply: async ({ text }) => ({ changed: applyFile(target, text), failures: new Map() }),
    read: async () => {
      try {
        const { clients } = parseYaml(ClientsFile, readIfPresent(target) ?? "", target);
        return new Map(clients.map(({ clientId, enabled }) => [clientId, { enabled }]));
      } catch (cause) {
        // The issuer has an older version in force, which nobody else knows.
        const hint = "Run `drawbridge reconcile`, which writes it anew.";
        throw new DrawbridgeError("issuer_unavailable", `${target} cannot be used`, { hint, cause });
      }
    },
    drift: async ({ text }) => [fileDrift(target, text)].filter((drift) => drift !== undefined),
  };
}

const PAGE = 500;
const LISTINGS_MAX = 5;
/** In every realm: a partner of such a name would take the console from its administrators. */
const KEYCLOAKS_OWN = [
  ...["account", "account-console", "admin-cli", "broker"],
  ...["realm-management", "security-admin-console"],
];
const ClientPage = z.array(keycloak.KeycloakClient);
const ScopeList = z.array(z.object({ id: z.string().min(1), name: z.string() }));

export function keycloakAdapter(target: keycloak.KeycloakTarget, directory: string): IssuerAdapter {
  const { realm, adminRealm, adminClientId, audience } = target;
  const call = keycloak.keycloakAdmin(target, directory);
  const secretsFolder = resolve(directory, target.secretsDirectory);
  /** Clients that are never touched, also when the registry declares them: Keycloak's, and the one that we act as. */
  const foreign = new Set([...KEYCLOAKS_OWN, ...(realm === adminRealm ? [adminClientId] : [])]);

  async function list(): Promise<ReadonlyMap<string, KeycloakClient>> {
    for (let listings = 0; listings < LISTINGS_MAX; listings++) {
      const found = await listOnce();
      if (found !== undefined) return found;
    }
    const hint = "It is tried again; see who adds and removes clients there so often.";
    throw keycloak.unavailable("Keycloak's clients change while they are listed", hint);
  }

  /** Undefined where clients were added or removed between two pages: one that is there may then be on neither. */
  async function listOnce(): Promise<ReadonlyMap<string, KeycloakClient> | undefined> {
    const found = new Map<string, KeycloakClient>();
    let last: string | undefined;
    // Each page begins with the last client of the page before.
    for (let first = 0; ; first += PAGE - 1) {
      const { status, body } = await call("GET", `clients?first=${first}&max=${PAGE}`);
      const page = ClientPage.safeParse(body);
      if (status !== 200 || !page.success) {
        const hint = "See that gateway.issuer.realm exists, and that Keycloak is of version 26.";
        throw keycloak.unavailable(`Keycloak does not list its clients: ${status}`, hint);
      }
      if (last !== undefined && page.data[0]?.clientId !== last) return undefined;
      for (const client of page.data) found.set(client.clientId, client);
      if (page.data.length < PAGE) return found;
      last = page.data.at(-1)?.clientId;
    }
  }

  async function succeeds(method: "POST" | "PUT" | "DELETE", path: string, body?: unknown): Promise<boolean> {
    const { status } = await call(method, path, body);
    return status >= 200 && status < 300;
  }

  /** Undefined where they are not given, which is of one client. */
  async function scopesAt(path: string) {
    const answer = await call("GET", path).catch(undefinedFor("issuer_unavailable"));
    return ScopeList.safeParse(answer?.body).data;
  }

  function secretOf({ secret }: IssuedClient): string | undefined {
    try {
      return secret && readRegistrySecret(secret, secretsFolder);
    } catch (error) {
      return undefinedFor()(error);
    }
  }

  function close(found: KeycloakClient, owner: string): Promise<boolean> {
    const closed = { enabled: false, attributes: keycloak.ownerOf(found, owner) };
    return succeeds("PUT", `clients/${found.id}`, closed);
  }

  /** Scopes and mappers first: with them wrong, a client that is enabled would have wrong tokens. */
  async function setRight(found: KeycloakClient, settings: ReturnType<typeof keycloak.clientSettings>) {
    const at = `clients/${found.id}`;
    let ok = true;
    for (const { id, name } of found.protocolMappers) {
      // The one for the audience stays, and is set right by PUT.
      if (id === undefined || name === keycloak.AUDIENCE_MAPPER) continue;
      ok = (await succeeds("DELETE", `${at}/protocol-mappers/models/${id}`)) && ok;
    }
    for (const [kind, extra] of [
      ["default-client-scopes", keycloak.extraScopes(found.defaultClientScopes)],
      ["optional-client-scopes", found.optionalClientScopes],
    ] as const) {
      if (extra.length === 0) continue;
      const scopes = await scopesAt(`${at}/${kind}`);
      ok = scopes !== undefined && ok;
      for (const { id, name } of scopes ?? [])
        if (extra.includes(name)) ok = (await succeeds("DELETE", `${at}/${kind}/${id}`)) && ok;
    }
    if (!found.defaultClientScopes.includes(keycloak.BASIC_SCOPE)) {
      const basic = (await scopesAt("client-scopes"))?.find(({ name }) => name === keycloak.BASIC_SCOPE);
      ok = basic !== undefined && (await succeeds("PUT", `${at}/default-client-scopes/${basic.id}`)) && ok;
    }
    return ok && (await succeeds("PUT", at, settings));
  }

  function differenceOf(client: IssuedClient, found: KeycloakClient | undefined, owner: string) {
    const subject = client.clientId;
    if (!client.enabled) {
      // Closed: nobody has a token by it, so what else it is does not count.
      // It is marked as the organisation's own, so that it is still looked after when it is declared no more.
      if (found === undefined) return undefined;
      if (!found.enabled && keycloak.isOwnedBy(found, owner)) return undefined;
      const kind = found.enabled ? "enabled" : "edited";
      const drift = { subject, kind, found: keycloak.clientDigest(found, false) };
      return { drift, isOpening: false, repair: () => close(found, owner) };
    }
    const secret = secretOf(client);
    if (found === undefined) {
      const made = secret === undefined ? undefined : keycloak.newClient(subject, owner, audience, secret);
      const drift = { subject, kind: "missing", found: null };
      return { drift, isOpening: true, repair: made && (() => succeeds("POST", "clients", made)) };
    }
    const marks = keycloak.ownerOf(found, owner);
    const settings = secret === undefined ? undefined : keycloak.clientSettings(audience, secret, marks);
    if (settings !== undefined && keycloak.hasSettings(found, settings)) return undefined;
    const digest = keycloak.clientDigest(found, secret !== undefined && found.secret === secret);
    const drift = { subject, kind: found.enabled ? "edited" : "disabled", found: digest };
    return { drift, isOpening: true, repair: settings && (() => setRight(found, settings)) };
  }

  async function differences(intent: IssuerIntent): Promise<readonly Difference[]> {
    const found = await list();
    const { owner, clients } = intent;
    const declared = clients.flatMap((one) => differenceOf(one, found.get(one.clientId), owner) ?? []);
    const extra = leftOver(found, intent).map((client) => {
      const [kind, repair] = keycloak.isAdopted(client)
        ? ["enabled", () => close(client, owner)]
        : ["extra", () => succeeds("DELETE", `clients/${client.id}`)];
      const drift = { subject: client.clientId, kind, found: keycloak.clientDigest(client, false) };
      return { drift, isOpening: false, repair };
    });
    return [...declared, ...extra];
  }

  async function apply(intent: IssuerIntent) {
    const failures: IssuerFailures = new Map();
    const isForeign = ({ clientId }: IssuedClient) => foreign.has(clientId);
    for (const { clientId } of intent.clients.filter(isForeign)) failures.set(clientId, "issuer_refused");
    let changed = false;
    const found = await differences(intent);
    const inTurn = found.toSorted((one, other) => Number(one.isOpening) - Number(other.isOpening));
    for (const { drift, repair } of inTurn) {
      if (failures.has(drift.subject)) continue;
      if (repair === undefined) failures.set(drift.subject, "secret_unavailable");
      else if (await repair()) changed = true;
      else failures.set(drift.subject, "issuer_refused");
    }
    for (const { drift } of changed ? await differences(intent) : [])
      if (!failures.has(drift.subject)) failures.set(drift.subject, "issuer_refused");
    return { changed, failures };
  }

  const drift = async (intent: IssuerIntent) => (await differences(intent)).map((one) => one.drift);
  return { apply, drift, read: list };
}

/** A client that is not as it is declared; nothing repairs one whose secret cannot be read. */
interface Difference {
  readonly drift: Drift;
  /** Repaired last. */
  readonly isOpening: boolean;
  readonly repair: (() => Promise<boolean>) | undefined;
}

/** The organisation's clients that it declares no more, but for those that were adopted and are disabled. */
function leftOver(found: ReadonlyMap<string, KeycloakClient>, { owner, clients }: IssuerIntent) {
  const declared = new Set(clients.map(({ clientId }) => clientId));
  const isLeft = (one: KeycloakClient) => keycloak.isOwnedBy(one, owner) && !declared.has(one.clientId);
  return [...found.values()].filter(isLeft).filter((one) => one.enabled || !keycloak.isAdopted(one));
}
