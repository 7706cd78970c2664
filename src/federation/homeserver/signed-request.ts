// A federation request signed with a homeserver's own key (Matrix server-server API,
// "Request Authentication"): the other server's answer, without our Synapse between.
// Invariants: the other server's certificate is verified; a body is read up to a bound; the key never leaves.
import { createPrivateKey, sign } from "node:crypto";
import { type Dispatcher, ProxyAgent } from "undici";
import { matrixCanonicalJson } from "../../domain/canonical-json.ts";
import type { Random } from "../../domain/clock.ts";
import { parseServerName, type ServerName } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import { httpAgent, requestJson } from "../../runtime/http.ts";
import { matrixAnswer } from "./api.ts";

interface SigningServer {
  readonly name: ServerName;
  /** Content of its signing key file: `ed25519 VERSION SEED`. */
  readonly signingKey: string;
  readonly proxyUrl?: string | undefined;
  /** PEM of the authorities that the other server's certificate may come from; the system's when absent. */
  readonly ca?: string | undefined;
}

export function freshSigningKey(random: Random, version: string): string {
  return `ed25519 ${version} ${unpaddedBase64(random.bytes(32))}`;
}

export function unpaddedBase64(bytes: Buffer): string {
  return bytes.toString("base64").replaceAll("=", "");
}

const TIMEOUT_MS = 20_000;
/** What is asked for here is an event or two; another server's answer of the usual bound can fill this program's memory. */
const BODY_BYTES_MAX = 1024 * 1024;
// RFC 8410, section 7: the fixed head of a PKCS #8 Ed25519 key; the 32-byte seed follows.
const PKCS8_ED25519_HEAD = Buffer.from("302e020100300506032b657004220420", "hex");

export type SignedRequests = ReturnType<typeof signedRequests>;
type Signing = Pick<SignedRequests, "request">;

export function signedRequests({ name: origin, signingKey, proxyUrl, ca }: SigningServer) {
  const tls = ca === undefined ? {} : { ca };
  const proxied = (uri: string) => new ProxyAgent({ uri, requestTls: tls, allowH2: false });
  const dispatcher: Dispatcher = proxyUrl === undefined ? httpAgent({ connect: tls }) : proxied(proxyUrl);
  return {
    /** A PUT of `content`, or a GET; the answer is never logged. @throws the network's error, also after `timeoutMs` */
    async request(destination: ServerName, path: string, content?: UnknownObject, timeoutMs = TIMEOUT_MS) {
      // The name may be of a user ID that another homeserver has taken in, and would be more than a host in an address.
      if (parseServerName(destination) === undefined)
        throw new TypeError("the destination is no server name");
      const method = content === undefined ? "GET" : "PUT";
      const about = { method, uri: path, origin, destination };
      const request = content === undefined ? about : { ...about, content };
      const { keyId, signature } = signJson(request, signingKey);
      const authorization = `X-Matrix origin="${origin}",destination="${destination}",key="${keyId}",sig="${signature}"`;
      const answer = await requestJson(`https://${destination}${path}`, {
        ...{ method, body: content, timeoutMs, bytesMax: BODY_BYTES_MAX, dispatcher },
        headers: { authorization },
      });
      // False for what calls itself something else than JSON: a homeserver answers with nothing else.
      const isJson = /^application\/json\b/i.test(String(answer.headers["content-type"]));
      return { ...matrixAnswer(answer), isJson };
    },

    close: () => dispatcher.close(),
  };
}

/** What a server answers that is asked for an event; undefined where that says nothing of the event. Never throws. */
export async function statusOfEvent(signed: Signing, server: ServerName, event: string, timeoutMs: number) {
  try {
    // An ID that cannot be escaped is shown by nobody.
    const path = `/_matrix/federation/v1/event/${encodeURIComponent(event)}`;
    const { status, isJson, errcode } = await signed.request(server, path, undefined, timeoutMs);
    // Synapse writes no errcode there, and an empty text for a body.
    const isNotFound = isJson && (errcode === undefined || errcode === "M_NOT_FOUND");
    return status !== 404 || isNotFound ? status : undefined;
  } catch {
    return undefined;
  }
}

/** Ed25519 over a value's canonical JSON (Matrix appendices, "Signing JSON"). @param signingKey content of its file */
export function signJson(value: unknown, signingKey: string) {
  const [algorithm, version, seed = ""] = signingKey.trim().split(/\s+/);
  const der = Buffer.concat([PKCS8_ED25519_HEAD, Buffer.from(seed, "base64")]);
  const key = createPrivateKey({ key: der, format: "der", type: "pkcs8" });
  const signature = unpaddedBase64(sign(null, Buffer.from(matrixCanonicalJson(value)), key));
  return { keyId: `${algorithm}:${version}`, signature };
}
