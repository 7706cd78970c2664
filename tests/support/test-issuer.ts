// A token endpoint that counts, refuses and rotates.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

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
