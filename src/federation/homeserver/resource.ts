// One request to a resource of the homeserver that lies outside the admin API, such as the border module's.
// Invariants: the token goes to the configured homeserver alone; the exchange has a deadline and its body a bound.
import { request } from "undici";
import { readBoundedJson } from "../../runtime/http.ts";

const TIMEOUT_MS = 10_000;
const BODY_BYTES_MAX = 16 * 1024 * 1024;

export interface ResourceCall {
  readonly method: "GET" | "POST";
  /** From the homeserver's root, its query included. */
  readonly path: string;
  readonly token: string;
  readonly body?: Readonly<Record<string, unknown>> | undefined;
}

/** Status and JSON body; undefined when no answer came. */
export async function callResource(
  homeserverUrl: string,
  { method, path, token, body }: ResourceCall,
): Promise<{ readonly status: number; readonly body: unknown } | undefined> {
  try {
    const response = await request(`${homeserverUrl.replace(/\/+$/, "")}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        accept: "application/json",
        ...(body !== undefined && { "content-type": "application/json" }),
      },
      body: body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    return { status: response.statusCode, body: await readBoundedJson(response.body, BODY_BYTES_MAX) };
  } catch {
    return undefined;
  }
}
