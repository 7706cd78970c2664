// The part of oidc-provider 9 that the issuer uses; the package ships no types.
declare module "oidc-provider" {
  import type { IncomingMessage, ServerResponse } from "node:http";

  export interface Adapter {
    find(id: string): Promise<Readonly<Record<string, unknown>> | undefined>;
  }

  export interface Context {
    readonly oidc?: { readonly client?: { readonly clientId: string } };
  }

  export interface Configuration {
    readonly adapter: (model: string) => Adapter;
    readonly jwks: { readonly keys: readonly object[] };
    readonly features: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
    readonly [key: string]: unknown;
    readonly extraTokenClaims: (
      ctx: Context,
      token: { readonly clientId: string },
    ) => Promise<Readonly<Record<string, string>>>;
  }

  export default class Provider {
    constructor(issuer: string, configuration: Configuration);
    /** Trust X-Forwarded-* of the proxy in front. */
    proxy: boolean;
    callback(): (request: IncomingMessage, response: ServerResponse) => Promise<void>;
    on(event: string, listener: (ctx: Context, error: Error) => void): this;
  }

  export const errors: {
    readonly InvalidTarget: new (message?: string) => Error;
  };
}
