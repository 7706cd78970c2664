// The part of oidc-provider 9 that the issuer uses; the package ships no types.
declare module "oidc-provider" {
  import type { IncomingMessage, ServerResponse } from "node:http";

  interface Context {
    readonly oidc?: { readonly client?: { readonly clientId: string } };
  }

  interface Configuration {
    readonly adapter: (model: string) => { find(id: string): Promise<object | undefined> };
    readonly jwks: { readonly keys: readonly object[] };
    readonly features: Readonly<Record<string, object>>;
    readonly [key: string]: unknown;
    readonly extraTokenClaims: (ctx: Context, token: { readonly clientId: string }) => Promise<object>;
  }

  export default class Provider {
    constructor(issuer: string, configuration: Configuration);
    /** Take host and scheme from X-Forwarded-*. */
    proxy: boolean;
    /** Print no stack of a request that failed. */
    silent: boolean;
    callback(): (request: IncomingMessage, response: ServerResponse) => Promise<void>;
    on(event: string, listener: (ctx: Context, error: Error) => void): this;
  }

  export const errors: {
    readonly InvalidTarget: new (message?: string) => Error;
  };
}
