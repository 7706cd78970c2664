// What the issuer's contract test needs of an issuer, whichever program it is.
import { stringify } from "yaml";
import type { z } from "zod";
import type { IssuerAdapter, IssuerIntent } from "../../../src/federation/planes/gateway/issuer-adapter.ts";
import { ClientsFile } from "../../../src/rendered-files/issuer-clients.ts";
import { parseYaml } from "../../../src/runtime/load-yaml.ts";

export const AUDIENCE = "https://agents.org-a.example";
export const OWNER = "org-a.example";

export interface TokenAnswer {
  readonly status: number;
  /** The `error` of a refusal. */
  readonly error: string | undefined;
  readonly token: string;
}

export interface IssuerUnderTest {
  readonly adapter: IssuerAdapter;
  /** The `iss` of its tokens, and where its keys are. */
  readonly url: string;
  readonly jwksUrl: string;
  /** Asks for a token by client credentials. */
  ask(clientId: string, secret: string): Promise<TokenAnswer>;
  /** A token of this client that lives two seconds. */
  shortLived(clientId: string, secret: string): Promise<string>;
  /** Puts a secret where references of clients find it: `{file: secrets/NAME}`. */
  putSecret(name: string, value: string): void;
  /** Somebody enables or disables a client beside the registry. */
  setByHand(clientId: string, enabled: boolean): Promise<void>;
  /** The issuer's answer to a known client with a wrong secret. */
  readonly wrongSecret: string;
  close(): Promise<void>;
}

/** The intent that a clients.yaml stands for. */
export function intentOf(clients: z.input<typeof ClientsFile>["clients"]): IssuerIntent {
  const text = stringify({ version: 1, clients });
  return { owner: OWNER, text, clients: parseYaml(ClientsFile, text, "clients.yaml").clients };
}

/** @param endpoint the token endpoint */
export async function askForToken(endpoint: string, clientId: string, secret: string): Promise<TokenAnswer> {
  const response = await fetch(endpoint, {
    method: "POST",
    // Kept open, it could be one that the issuer closes as it starts anew.
    headers: {
      connection: "close",
      authorization: `Basic ${Buffer.from(`${clientId}:${secret}`).toString("base64")}`,
    },
    body: new URLSearchParams({ grant_type: "client_credentials" }),
  });
  const { error, access_token: token } = (await response.json()) as Readonly<Record<string, unknown>>;
  return {
    status: response.status,
    error: typeof error === "string" ? error : undefined,
    token: typeof token === "string" ? token : "",
  };
}
