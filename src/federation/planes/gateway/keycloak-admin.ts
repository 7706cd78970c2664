// Keycloak's Admin REST API (26): the few requests that clients need, as a service account.
// Invariants: its token comes by client credentials, is kept until shortly before it ends and requested anew once
// when it is refused; no redirect is followed, so that it goes to the configured address alone; every exchange
// has a deadline; neither token, secret nor body reaches an error.
import { Agent, request } from "undici";
import type { Clock } from "../../../domain/clock.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { readBoundedValue } from "../../../runtime/http.ts";
import { readInput } from "../../../runtime/read-input.ts";

export interface KeycloakAccess {
  /** Base URL, without `/realms` or a final slash. */
  readonly url: string;
  readonly realm: string;
  readonly adminRealm: string;
  readonly adminClientId: string;
  /** Read anew for each token, so that it can be rotated. */
  readonly adminClientSecret: () => string;
  readonly caFile?: string | undefined;
}

export interface AdminAnswer {
  readonly status: number;
  /** Parsed JSON; undefined when there was none. */
  readonly body: unknown;
}

const EXCHANGE_MS = 10_000;
/** A Keycloak that is down must not hold up what the gateway closes. */
const CONNECT_MS = 2_000;
const RENEW_BEFORE_MS = 15_000;

export class KeycloakAdmin {
  readonly #access: KeycloakAccess;
  readonly #clock: Clock;
  #agent: Agent | undefined;
  #token: { readonly value: string; readonly renewAt: number } | undefined;

  constructor(access: KeycloakAccess, clock: Clock) {
    this.#access = access;
    this.#clock = clock;
  }

  /**
   * @param path below the realm, such as `clients`
   * @returns the answer, whatever its status but 401, 403 and 5xx
   * @throws DrawbridgeError `issuer_unavailable`
   */
  async call(method: "GET" | "POST" | "PUT" | "DELETE", path: string, body?: unknown): Promise<AdminAnswer> {
    const url = `${this.#access.url}/admin/realms/${encodeURIComponent(this.#access.realm)}/${path}`;
    for (let attempt = 0; ; attempt += 1) {
      const authorization = `Bearer ${await this.#accessToken()}`;
      const answer = await this.#exchange(url, {
        method,
        headers: {
          authorization,
          accept: "application/json",
          ...(body !== undefined && { "content-type": "application/json" }),
        },
        body: body === undefined ? null : JSON.stringify(body),
      });
      if (answer.status === 401 && attempt === 0) {
        this.#token = undefined;
        continue;
      }
      if (answer.status === 401 || answer.status === 403) {
        throw unavailable(
          `Keycloak denies ${this.#access.adminClientId} the clients of realm ${this.#access.realm}`,
          "Give its service account the realm's role manage-clients.",
        );
      }
      if (answer.status >= 500) throw unavailable(`Keycloak answers ${answer.status}`);
      return answer;
    }
  }

  async #accessToken(): Promise<string> {
    const now = this.#clock.now();
    if (this.#token !== undefined && now < this.#token.renewAt) return this.#token.value;
    const { url, adminRealm, adminClientId, adminClientSecret } = this.#access;
    const credentials = [adminClientId, adminClientSecret()].map(formEncoded).join(":");
    const { status, body } = await this.#exchange(
      `${url}/realms/${encodeURIComponent(adminRealm)}/protocol/openid-connect/token`,
      {
        method: "POST",
        headers: {
          authorization: `Basic ${Buffer.from(credentials).toString("base64")}`,
          "content-type": "application/x-www-form-urlencoded",
        },
        body: "grant_type=client_credentials",
      },
    );
    const { access_token: value, expires_in: lifeS } = (body ?? {}) as Readonly<Record<string, unknown>>;
    if (status !== 200 || typeof value !== "string" || value === "") {
      throw unavailable(
        `Keycloak gives ${adminClientId} no token: ${status}`,
        "Compare adminRealm, adminClientId and its secret with Keycloak; service accounts must be enabled.",
      );
    }
    const lifeMs = typeof lifeS === "number" ? lifeS * 1_000 : 0;
    this.#token = { value, renewAt: now + Math.max(lifeMs - RENEW_BEFORE_MS, lifeMs / 2) };
    return value;
  }

  async #exchange(
    url: string,
    options: {
      readonly method: "GET" | "POST" | "PUT" | "DELETE";
      readonly headers: Readonly<Record<string, string>>;
      readonly body: string | null;
    },
  ): Promise<AdminAnswer> {
    const dispatcher = this.#dispatcher();
    try {
      const response = await request(url, {
        ...options,
        dispatcher,
        signal: AbortSignal.timeout(EXCHANGE_MS),
      });
      return { status: response.statusCode, body: await readBoundedValue(response.body) };
    } catch {
      throw unavailable("Keycloak does not answer");
    }
  }

  #dispatcher(): Agent {
    const { caFile } = this.#access;
    this.#agent ??= new Agent({
      connections: 4,
      // Short, so that a command that used it can end.
      keepAliveTimeout: 1_000,
      connect: {
        timeout: CONNECT_MS,
        ...(caFile !== undefined && { ca: readInput(caFile, "Check gateway.issuer.caFile.") }),
      },
    });
    return this.#agent;
  }
}

/** As RFC 6749, section 2.3.1, wants the parts of a basic credential. */
function formEncoded(text: string): string {
  return new URLSearchParams([["", text]]).toString().slice(1);
}

function unavailable(what: string, hint = "Start Keycloak, or correct gateway.issuer.url."): DrawbridgeError {
  return new DrawbridgeError("issuer_unavailable", what, { hint });
}
