// A federation request made by hand, signed with a homeserver's own key (Matrix server-server API,
// "Request Authentication"): what another organisation's server really answers, without Synapse between.
import { createPrivateKey, type KeyObject, sign } from "node:crypto";
import { ProxyAgent, request } from "undici";
import type { ServerName } from "../../domain/identifiers.ts";

export interface SigningServer {
  readonly name: ServerName;
  /** Content of its signing key file: `ed25519 VERSION SEED`. */
  readonly signingKey: string;
  readonly proxyUrl: string;
  /** PEM of the authority that the other server's certificate must come from. */
  readonly ca: string;
}

export interface FederationAnswer {
  readonly status: number;
  readonly errcode: string | undefined;
}

const TIMEOUT_MS = 20_000;
// RFC 8410, section 7: the fixed head of a PKCS #8 Ed25519 key; the 32-byte seed follows.
const PKCS8_ED25519_HEAD = Buffer.from("302e020100300506032b657004220420", "hex");

/** Sends a signed request through the organisation's proxy, verifying the other server's certificate. */
export async function signedRequest(
  origin: SigningServer,
  destination: ServerName,
  method: "GET" | "PUT",
  path: string,
  content?: Readonly<Record<string, unknown>>,
): Promise<FederationAnswer> {
  const agent = new ProxyAgent({ uri: origin.proxyUrl, requestTls: { ca: origin.ca } });
  try {
    const response = await request(`https://${destination}${path}`, {
      method,
      dispatcher: agent,
      headers: {
        authorization: authorization(origin, destination, method, path, content),
        ...(content === undefined ? {} : { "content-type": "application/json" }),
      },
      body: content === undefined ? null : JSON.stringify(content),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const body = (await response.body.json().catch(() => ({}))) as { errcode?: unknown };
    return {
      status: response.statusCode,
      errcode: typeof body.errcode === "string" ? body.errcode : undefined,
    };
  } finally {
    await agent.close();
  }
}

function authorization(
  origin: SigningServer,
  destination: ServerName,
  method: string,
  uri: string,
  content: Readonly<Record<string, unknown>> | undefined,
): string {
  const [algorithm, version, seed] = origin.signingKey.trim().split(/\s+/);
  const signed = canonicalJson({
    method,
    uri,
    origin: origin.name,
    destination,
    ...(content === undefined ? {} : { content }),
  });
  const signature = signWithSeed(signed, seed ?? "");
  return `X-Matrix origin="${origin.name}",destination="${destination}",key="${algorithm}:${version}",sig="${signature}"`;
}

/** Ed25519 over a text, as unpadded base64 (Matrix appendices, "Signing JSON"). */
export function signWithSeed(text: string, seed: string): string {
  return sign(null, Buffer.from(text), keyOf(seed)).toString("base64").replaceAll("=", "");
}

function keyOf(seed: string): KeyObject {
  const der = Buffer.concat([PKCS8_ED25519_HEAD, Buffer.from(seed, "base64")]);
  return createPrivateKey({ key: der, format: "der", type: "pkcs8" });
}

/** Canonical JSON (Matrix appendices) of what is sent here: objects, arrays, strings and integers. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, member]) => `${JSON.stringify(key)}:${canonicalJson(member)}`);
    return `{${members.join(",")}}`;
  }
  return JSON.stringify(value);
}
