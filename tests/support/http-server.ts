// A small HTTP server on loopback for a test, which says what it answers and counts what it was asked.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

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

/** Answers 200 with this JSON text. */
export function json(body: string | Uint8Array): TestHttpServer["answer"] {
  return (_request, response) => {
    response.writeHead(200, { "content-type": "application/json" }).end(body);
  };
}
