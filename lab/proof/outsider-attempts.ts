// Tries everything as org C, which nobody admits, and reports what refused it on each plane. Where another plane
// answers a request of C's first, the part that enforces the plane is queried instead.
// Invariant: a homeserver's refusal counts for a plane only if it has the form of that plane's refusals.
import { join } from "node:path";
import { importJWK, SignJWT } from "jose";
import { fetchCard } from "../../src/cards/fetch.ts";
import { importSigningKey, signCard } from "../../src/cards/sign.ts";
import { importPinnedKey, verifyCard } from "../../src/cards/verify.ts";
import { loadFederationConfig } from "../../src/federation/config.ts";
import type { MatrixAnswer } from "../../src/federation/homeserver/api.ts";
import { signedRequests } from "../../src/federation/homeserver/signed-request.ts";
import type { PlaneName } from "../../src/federation/plane-order.ts";
import { borderStatus } from "../../src/federation/planes/border/runtime.ts";
import { homeserverRefusal } from "../../src/federation/probes/read-answers.ts";
import { AgentsFile } from "../../src/rendered-files/agents-file.ts";
import { loadYaml } from "../../src/runtime/load-yaml.ts";
import { readIfPresent } from "../../src/runtime/write-file.ts";
import { outsiderFiles } from "../configuration/credentials.ts";
import { HOMESERVER_FILES } from "../configuration/synapse-config.ts";
import { agentName, homeserverEndpoints, serviceEndpoints } from "../endpoints.ts";
import { type Lab, SOURCES } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, clientIds, partnerOf } from "../organisations.ts";
import { personOf, roomOf, type Seed } from "../seed/seed-file.ts";

const { clock, random } = SOURCES;

export const ATTEMPTS = [
  "federation_send",
  "join",
  "room_acl",
  "border",
  "forged_card",
  "token",
  "foreign_token",
  "unadmitted_client",
] as const;
export type Attempt = (typeof ATTEMPTS)[number];

/** The plane that an attempt is about. */
export const ATTEMPT_PLANES: Readonly<Record<Attempt, PlaneName>> = {
  federation_send: "transport",
  // The transport answers before the room's ACL is evaluated.
  join: "transport",
  room_acl: "rooms",
  border: "border",
  forged_card: "card",
  token: "gateway",
  foreign_token: "gateway",
  unadmitted_client: "gateway",
};

/** An HTTP status, or the verdict of a part that answers without one. */
type Answer = number | "denied" | "let in" | "rejected" | "accepted" | "no card";

export interface Refusal {
  readonly attempt: Attempt;
  /** The organisation that was tried. */
  readonly at: CompleteOrganisation;
  readonly expected: Answer;
  readonly received: Answer;
  /** The error code in the body, or the text of the answer. */
  readonly code: string | undefined;
  /** The layer of the homeserver that has to refuse, where the answer shows it, and the one that did. */
  readonly layer?: { readonly expected: string; readonly answered: string | undefined };
}

/** The attempts, for people. */
export const ATTEMPT_TITLES: Readonly<Record<Attempt, string>> = {
  federation_send: "sends by federation, signed with its own server key",
  join: "joins a shared room",
  room_acl: "by the ACL of the shared room, as the homeserver enforces it",
  border: "by the policy that the border module has in force",
  forged_card: "forges the agent's card, signed with its own key under the pinned key's name",
  token: "asks for a token as org-c-bridge, which no issuer knows",
  foreign_token: "calls the agent with a token that it signed itself",
  unadmitted_client: "calls the agent as org-c-applicant, known to the issuer, admitted by no gateway",
};

/** Tries everything at A and at B. */
export async function attemptEverything(lab: Lab, seed: Seed): Promise<Refusal[]> {
  const results = await Promise.all(
    COMPLETE_ORGANISATIONS.map((at) =>
      Promise.all([
        trySend(lab, at),
        tryJoin(lab, seed, at),
        askRoomAcl(lab, seed, at),
        askBorder(lab, at),
        tryForgedCard(lab, at),
        tryToken(lab, at),
        tryForeignToken(lab, at),
        tryUnadmittedClient(lab, at),
      ]),
    ),
  );
  return results.flat();
}

export function isRefused(refusal: Refusal): boolean {
  const { received, expected, layer } = refusal;
  return received === expected && layer?.answered === layer?.expected;
}

async function tryJoin(lab: Lab, seed: Seed, at: CompleteOrganisation): Promise<Refusal> {
  const person = personOf(lab, seed, "org-c");
  const answer = await person.join(roomOf(seed, at)?.roomId ?? "", [lab.serverNames[at]]);
  const { errcode } = answer.body;
  const refused = { ...answer, errcode: typeof errcode === "string" ? errcode : undefined };
  return { attempt: "join", at, ...byTransport(refused) };
}

async function trySend(lab: Lab, at: CompleteOrganisation): Promise<Refusal> {
  const paths = lab.paths.organisation("org-c");
  const name = lab.serverNames["org-c"];
  const requests = signedRequests({
    name,
    signingKey: readIfPresent(join(paths.homeserver, HOMESERVER_FILES.signingKey)) ?? "",
    proxyUrl: homeserverEndpoints(lab, "org-c").connectProxy,
    ca: readIfPresent(lab.paths.caCertificate) ?? "",
  });
  try {
    const path = `/_matrix/federation/v1/send/${random.bytes(12).toString("hex")}`;
    const content = { origin: name, origin_server_ts: clock.now(), pdus: [], edus: [] };
    const answer = await requests.request(lab.serverNames[at], path, content);
    return { attempt: "federation_send", at, ...byTransport(answer) };
  } finally {
    await requests.close();
  }
}

function byTransport(answer: MatrixAnswer): Pick<Refusal, "expected" | "received" | "code" | "layer"> {
  return {
    expected: 403,
    received: answer.status,
    code: answer.errcode,
    layer: { expected: "transport", answered: homeserverRefusal(answer)?.layer },
  };
}

function borderOf(lab: Lab, at: CompleteOrganisation) {
  return borderStatus(loadFederationConfig(lab.paths.organisation(at).federationConfig));
}

/** Reads the cache by which the homeserver decides, not the room's state. */
async function askRoomAcl(lab: Lab, seed: Seed, at: CompleteOrganisation): Promise<Refusal> {
  const enforced = await borderOf(lab, at).enforcement(
    roomOf(seed, at)?.roomId ?? "",
    lab.serverNames["org-c"],
  );
  return {
    attempt: "room_acl",
    at,
    expected: "denied",
    received: enforced.allowed ? "let in" : "denied",
    code: enforced.enforces_state ? undefined : "state_not_enforced",
  };
}

async function askBorder(lab: Lab, at: CompleteOrganisation): Promise<Refusal> {
  const { allowed } = await borderOf(lab, at).check(lab.serverNames["org-c"]);
  return {
    attempt: "border",
    at,
    expected: "denied",
    received: allowed ? "let in" : "denied",
    code: allowed ? undefined : "server_not_allowed",
  };
}

/** Verifies a forged card against the key that the partner's bridge has pinned in its agents.yaml. */
async function tryForgedCard(lab: Lab, at: CompleteOrganisation): Promise<Refusal> {
  const about = { attempt: "forged_card", at, expected: "rejected" } as const;
  const consumer = partnerOf(at);
  const agents = loadYaml(AgentsFile, lab.paths.organisation(consumer).agentsFile).agents;
  const pin = agents[agentName(consumer, at)]?.cardIdentity;
  const fetched = await fetchCard(serviceEndpoints(lab, at).cardUrl, { clock });
  if (pin === undefined || !fetched.fetched) return { ...about, received: "no card", code: undefined };
  const key = await importSigningKey(readIfPresent(outsiderFiles(lab).tokenKey) ?? "");
  const forged = await signCard(fetched.bytes, { key, keyId: pin.keyId });
  if (!forged.signed) throw new TypeError("a card that is published can be signed");
  const verdict = await verifyCard(forged.bytes, [await importPinnedKey(pin.keyId, pin.jwk)]);
  return verdict.accepted
    ? { ...about, received: "accepted", code: undefined }
    : { ...about, received: "rejected", code: verdict.reason };
}

/** Asks an issuer for a token, as the client of a secret. */
export async function requestToken(lab: Lab, at: CompleteOrganisation, clientId: string, secretFile: string) {
  const endpoints = serviceEndpoints(lab, at);
  const secret = (readIfPresent(secretFile) ?? "").trim();
  const response = await fetch(endpoints.tokenEndpoint, {
    method: "POST",
    headers: { authorization: `Basic ${Buffer.from(`${clientId}:${secret}`).toString("base64")}` },
    body: new URLSearchParams({ grant_type: "client_credentials", resource: endpoints.audience }),
  });
  const body = (await response.json()) as { access_token?: string; error?: string };
  return { status: response.status, token: body.access_token, error: body.error };
}

async function tryToken(lab: Lab, at: CompleteOrganisation): Promise<Refusal> {
  const answer = await requestToken(
    lab,
    at,
    clientIds.bridgeOf("org-c"),
    outsiderFiles(lab).unknownClientSecret,
  );
  return { attempt: "token", at, expected: 401, received: answer.status, code: answer.error };
}

/** A well-formed invocation: with an admitted token it would reach the agent. */
async function invoke(
  lab: Lab,
  at: CompleteOrganisation,
  token: string,
): Promise<{ status: number; text: string }> {
  const response = await fetch(serviceEndpoints(lab, at).invokeUrl, {
    method: "POST",
    headers: {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      "a2a-version": "1.0",
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "SendMessage",
      params: {
        message: {
          messageId: random.bytes(16).toString("hex"),
          role: "ROLE_USER",
          parts: [{ text: "hello" }],
        },
      },
    }),
  });
  return { status: response.status, text: (await response.text()).trim() };
}

async function tryForeignToken(lab: Lab, at: CompleteOrganisation): Promise<Refusal> {
  const endpoints = serviceEndpoints(lab, at);
  const jwk = JSON.parse(readIfPresent(outsiderFiles(lab).tokenKey) ?? "{}");
  const issuedAt = Math.floor(clock.now() / 1_000);
  const token = await new SignJWT({ azp: clientIds.bridgeOf("org-a") })
    .setProtectedHeader({ alg: "ES256", kid: jwk.kid, typ: "at+jwt" })
    .setIssuer(endpoints.issuerUrl)
    .setAudience(endpoints.audience)
    .setIssuedAt(issuedAt)
    .setExpirationTime(issuedAt + 300)
    .sign(await importJWK(jwk, "ES256"));
  const answer = await invoke(lab, at, token);
  return { attempt: "foreign_token", at, expected: 401, received: answer.status, code: answer.text };
}

async function tryUnadmittedClient(lab: Lab, at: CompleteOrganisation): Promise<Refusal> {
  const { token } = await requestToken(lab, at, clientIds.applicant, outsiderFiles(lab).applicantSecret(at));
  if (token === undefined) {
    return { attempt: "unadmitted_client", at, expected: 403, received: 0, code: "no token was issued" };
  }
  const answer = await invoke(lab, at, token);
  return { attempt: "unadmitted_client", at, expected: 403, received: answer.status, code: answer.text };
}
