// A federation request signed with a homeserver's own key (Matrix server-server API,
// "Request Authentication"): the other server's answer, without our Synapse between.
// Invariants: the other server's certificate is verified; a body is read up to a bound; the key never leaves.
import { createPrivateKey, type KeyObject, sign } from "node:crypto";
import { Agent, type Dispatcher, ProxyAgent } from "undici";
import { matrixCanonicalJson } from "../../domain/canonical-json.ts";
import type { Random } from "../../domain/clock.ts";
import type { ServerName } from "../../domain/identifiers.ts";
import { requestJson } from "../../runtime/http.ts";
import { type ApiAnswer, matrixAnswer } from "./api.ts";

export interface SigningServer {
  readonly name: ServerName;
  /** Content of its signing key file: `ed25519 VERSION SEED`. */
  readonly signingKey: string;
  /** A CONNECT proxy; the other server is reached directly when absent. */
  readonly proxyUrl?: string | undefined;
  /** PEM of the authorities that the other server's certificate may come from; the system's when absent. */
  readonly ca?: string | undefined;
}

/** The body is the other server's word: never logged. */
export interface FederationAnswer extends ApiAnswer {
  /** False for what calls itself something else than JSON: a homeserver answers with nothing else. */
  readonly isJson: boolean;
}

/** A new key in the form of a homeserver's signing key file: `ed25519 VERSION SEED`. */
export function freshSigningKey(random: Random, version: string): string {
  return `ed25519 ${version} ${random.bytes(32).toString("base64").replaceAll("=", "")}`;
}

type Method = "GET" | "PUT" | "POST";
type Content = Readonly<Record<string, unknown>>;

const TIMEOUT_MS = 20_000;
// RFC 8410, section 7: the fixed head of a PKCS #8 Ed25519 key; the 32-byte seed follows.
const PKCS8_ED25519_HEAD = Buffer.from("302e020100300506032b657004220420", "hex");

/** Makes signed requests as one server and keeps its connections for the next ones. */
export class SignedRequests {
  readonly #origin: SigningServer;
  readonly #dispatcher: Dispatcher;

  constructor(origin: SigningServer) {
    this.#origin = origin;
    const tls = origin.ca === undefined ? {} : { ca: origin.ca };
    this.#dispatcher =
      origin.proxyUrl === undefined
        ? new Agent({ connect: tls })
        : new ProxyAgent({ uri: origin.proxyUrl, requestTls: tls });
  }

  /**
   * Sends one request.
   * @throws the network's error, when no answer came within `timeoutMs` (milliseconds)
   */
  async request(
    destination: ServerName,
    method: Method,
    path: string,
    content?: Content,
    timeoutMs = TIMEOUT_MS,
  ): Promise<FederationAnswer> {
    const answer = await requestJson(`https://${destination}${path}`, {
      ...{ method, body: content, timeoutMs, dispatcher: this.#dispatcher },
      headers: { authorization: authorization(this.#origin, destination, method, path, content) },
    });
    const isJson = /^application\/json\b/i.test(String(answer.headers["content-type"]));
    return { ...matrixAnswer(answer), isJson };
  }

  async close(): Promise<void> {
    await this.#dispatcher.close();
  }
}

/** Sends a single signed request, verifying the other server's certificate. */
export async function signedRequest(
  origin: SigningServer,
  destination: ServerName,
  method: Method,
  path: string,
  content?: Content,
): Promise<FederationAnswer> {
  const requests = new SignedRequests(origin);
  try {
    return await requests.request(destination, method, path, content);
  } finally {
    await requests.close();
  }
}

function authorization(
  origin: SigningServer,
  destination: ServerName,
  method: string,
  uri: string,
  content: Content | undefined,
): string {
  const [algorithm, version, seed] = origin.signingKey.trim().split(/\s+/);
  const signed = matrixCanonicalJson({
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
