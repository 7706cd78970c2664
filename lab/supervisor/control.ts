// The supervisor's control interface: HTTP on loopback.
// Invariant: nothing is answered without the token, which only this user can read.
import { timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { sha256 } from "../../src/domain/digest.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { SupervisorCommand } from "./client.ts";
import type { Supervisor } from "./supervisor.ts";

export interface ControlOptions {
  readonly port: number;
  readonly token: string;
  readonly supervisor: Supervisor;
  /** Begins the end; returns at once. */
  readonly onShutdown: () => void;
}

const BODY_BYTES_MAX = 16_384;

export async function startControl(options: ControlOptions): Promise<Server> {
  const server = createServer((request, response) => {
    handle(options, request, response).catch((error: unknown) => {
      const known = error instanceof DrawbridgeError;
      answer(response, known ? 400 : 500, {
        error: known ? error.code : "internal",
        message: known ? error.message : "the supervisor failed; see its log",
        ...(known && error.hint !== undefined ? { hint: error.hint } : {}),
      });
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host: "127.0.0.1", port: options.port, exclusive: true }, resolve);
  });
  return server;
}

async function handle(
  options: ControlOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (!isAuthorized(request.headers.authorization, options.token)) {
    request.resume();
    answer(response, 401, { error: "usage", message: "a bearer token is needed" });
    return;
  }
  if (request.method === "GET" && request.url === "/status") {
    answer(response, 200, options.supervisor.status());
    return;
  }
  if (request.method !== "POST" || request.url !== "/command") {
    request.resume();
    answer(response, 404, { error: "usage", message: "no such resource" });
    return;
  }
  const command = SupervisorCommand.safeParse(parse(await bodyOf(request)));
  if (!command.success) throw new DrawbridgeError("usage", "that is no command of the supervisor");
  if (command.data.action === "shutdown") {
    answer(response, 202, {});
    options.onShutdown();
    return;
  }
  await options.supervisor.execute(command.data);
  answer(response, 200, {});
}

/** Compared as digests, so that neither length nor content of the token shows in the time it takes. */
function isAuthorized(header: string | undefined, token: string): boolean {
  return timingSafeEqual(sha256(header ?? ""), sha256(`Bearer ${token}`));
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = "";
  request.setEncoding("utf8");
  for await (const chunk of request) {
    body += chunk;
    if (body.length > BODY_BYTES_MAX) throw new DrawbridgeError("usage", "the command is too long");
  }
  return body;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function answer(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}
