// The part of oidc-provider 9 that the issuer uses; the package ships no types.
declare module "oidc-provider" {
  import type { IncomingMessage, ServerResponse } from "node:http";

  export interface ClientMetadata {
    readonly client_id: string;
    readonly client_secret: string;
    readonly grant_types: readonly string[];
    readonly response_types: readonly string[];
    readonly redirect_uris: readonly string[];
    readonly token_endpoint_auth_method: "client_secret_basic";
    readonly id_token_signed_response_alg: "ES256";
  }

  export interface Adapter {
    find(id: string): Promise<ClientMetadata | undefined>;
    findByUid(uid: string): Promise<undefined>;
    findByUserCode(userCode: string): Promise<undefined>;
    upsert(id: string, payload: unknown, expiresIn: number): Promise<void>;
    consume(id: string): Promise<void>;
    destroy(id: string): Promise<void>;
    revokeByGrantId(grantId: string): Promise<void>;
  }

  export interface Context {
    readonly oidc?: {
      readonly client?: { readonly clientId: string };
      readonly params?: Readonly<Record<string, unknown>>;
    };
  }

  interface Token {
    readonly clientId: string;
  }

  export interface Configuration {
    readonly adapter: (model: string) => Adapter;
    readonly jwks: { readonly keys: readonly object[] };
    readonly features: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
    readonly [key: string]: unknown;
    readonly extraTokenClaims: (ctx: Context, token: Token) => Promise<Readonly<Record<string, string>>>;
  }

  export default class Provider {
    constructor(issuer: string, configuration: Configuration);
    /** Trust X-Forwarded-* of the proxy in front. */
    proxy: boolean;
    callback(): (request: IncomingMessage, response: ServerResponse) => Promise<void>;
    on(event: "grant.success", listener: (ctx: Context) => void): this;
    on(event: "grant.error" | "server_error", listener: (ctx: Context, error: Error) => void): this;
  }

  export const errors: {
    readonly InvalidTarget: new (message?: string) => Error;
  };
}
