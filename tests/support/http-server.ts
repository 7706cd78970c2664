// Small HTTP servers on loopback that answer as a test says: any server, a homeserver with answers that a
// real one gives only when it is ill, and a token endpoint that counts, refuses and rotates.
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createSecureServer, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { openAuthority } from "../../lab/configuration/certificates.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import { temporaryFolder } from "./temporary.ts";

export interface TestHttpServer {
  readonly url: string;
  /** Path and query of each request, in order. */
  readonly requests: readonly IncomingMessage[];
  answer: (request: IncomingMessage, response: ServerResponse) => void;
}

/** Starts it on a free port; it ends with the test, and so does every connection. */
export async function httpServer(t: Pick<TestContext, "after">): Promise<TestHttpServer> {
  const requests: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    requests.push(request);
    made.answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const { port } = server.address() as AddressInfo;
  const made: TestHttpServer = {
    url: `http://127.0.0.1:${port}`,
    requests,
    answer: (_request, response) => response.writeHead(404).end(),
  };
  return made;
}

/** A server on `https://localhost` that this process trusts, and that offers HTTP/2 before HTTP/1.1. @returns its port */
export async function http2Server(
  t: Pick<TestContext, "after">,
  answer: (request: Http2ServerRequest, response: Http2ServerResponse) => void,
): Promise<number> {
  const folder = temporaryFolder(t);
  const files = { certificate: `${folder}/ca.pem`, privateKey: `${folder}/ca.key` };
  const authority = await openAuthority(files, { clock: systemClock, random: systemRandom });
  const trusted = getCACertificates("default");
  setDefaultCACertificates([...trusted, authority.certificate]);
  t.after(() => setDefaultCACertificates(trusted));
  const { certificate: cert, privateKey: key } = await authority.issue("localhost");
  const server = createSecureServer({ cert, key, allowHTTP1: true }, answer);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

/** Answers 200 with this JSON text. */
export function json(body: string | Uint8Array): TestHttpServer["answer"] {
  return (_request, response) => {
    response.writeHead(200, { "content-type": "application/json" }).end(body);
  };
}

export interface ReceivedRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly authorization: string | undefined;
  readonly body: unknown;
}

export interface ScriptedAnswer {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** A JSON value, or text that is sent as it is. */
  readonly body?: unknown;
}

/** What to answer; `hang` never answers, `reset` closes the connection without a word. */
export type Script = (request: ReceivedRequest) => ScriptedAnswer | "hang" | "reset";

/** A script whose answers may take a while. */
export type SlowScript = (request: ReceivedRequest) => Promise<ReturnType<Script>>;

export interface ScriptedHomeserver {
  readonly url: string;
  readonly requests: readonly ReceivedRequest[];
  script: Script;
  /** Closes all connections, requests that hang included, as the end of its process does. */
  dropConnections(): void;
}

/** Answers every setting-up request of a ghost, so that a script need only name what it is about. */
export const WELL: Script = ({ path }) =>
  path.includes("/send/") ? { body: { event_id: "$sent" } } : { body: {} };

export async function scriptedHomeserver(
  t: TestContext,
  script: Script | SlowScript = WELL,
): Promise<ScriptedHomeserver> {
  const requests: ReceivedRequest[] = [];
  const close = () => server.closeAllConnections();
  const made = { url: "", requests, script: script as Script, dropConnections: close };
  const server = createServer((request, response) => {
    void answer(request, response).catch(() => response.destroy());
  });
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const url = new URL(request.url ?? "/", "http://homeserver");
    const text = Buffer.concat(chunks).toString();
    // What is uploaded is no JSON.
    const isJson = request.headers["content-type"] === "application/json";
    const one: ReceivedRequest = {
      method: request.method ?? "",
      path: decodeURIComponent(url.pathname),
      query: url.searchParams,
      authorization: request.headers.authorization,
      body: text === "" ? undefined : isJson ? JSON.parse(text) : text,
    };
    requests.push(one);
    const scripted = await made.script(one);
    if (scripted === "hang") return;
    if (scripted === "reset") {
      request.socket.destroy();
      return;
    }
    response.writeHead(scripted.status ?? 200, { "content-type": "application/json", ...scripted.headers });
    const isRaw = typeof scripted.body === "string" || scripted.body instanceof Uint8Array;
    response.end(isRaw ? scripted.body : JSON.stringify(scripted.body ?? {}));
  };
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  made.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  t.after(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, "close");
  });
  return made;
}

export interface TestIssuer {
  readonly tokenEndpoint: string;
  /** Every request: what the client said. */
  readonly requests: { readonly clientId: string; readonly secret: string; readonly form: URLSearchParams }[];
  readonly issued: string[];
  secret: string;
  expiresIn: number | undefined;
  /** Answered instead of a token, while set. */
  answer:
    | { readonly status: number; readonly body: string; readonly headers?: Record<string, string> }
    | undefined;
  /** Awaited before an answer is given. */
  gate: Promise<void>;
}

export async function startTestIssuer(t: TestContext): Promise<TestIssuer> {
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const chunk of request) text += String(chunk);
    const [id = "", secret = ""] = Buffer.from(
      (request.headers.authorization ?? "").replace("Basic ", ""),
      "base64",
    )
      .toString("utf8")
      .split(":")
      .map((half) => decodeURIComponent(half.replaceAll("+", " ")));
    issuer.requests.push({ clientId: id, secret, form: new URLSearchParams(text) });
    await issuer.gate;
    const json = { "content-type": "application/json" };
    if (issuer.answer !== undefined) {
      response.writeHead(issuer.answer.status, { ...json, ...issuer.answer.headers });
      response.end(issuer.answer.body);
    } else if (secret !== issuer.secret) {
      response.writeHead(401, json);
      response.end('{"error":"invalid_client"}');
    } else {
      const token = `token-${issuer.issued.length + 1}`;
      issuer.issued.push(token);
      response.writeHead(200, json);
      response.end(
        JSON.stringify({ access_token: token, token_type: "Bearer", expires_in: issuer.expiresIn }),
      );
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const issuer: TestIssuer = {
    tokenEndpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}/token`,
    requests: [],
    issued: [],
    secret: "s3cret:with/odd+signs",
    expiresIn: 300,
    answer: undefined,
    gate: Promise.resolve(),
  };
  t.after(
    () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  );
  return issuer;
}
