// Fetches a card's bytes (A2A 1.0, section 8.2), or its icon's, without trusting its server. Invariants: a private address is
// reached only if the caller allows it; one GET without credentials, no redirect followed, nothing decoded; status 200 and a
// media type of what is fetched, or nothing; never more read than its bound; one deadline over the whole of it.
import { type Dispatcher, request } from "undici";
import type { Clock } from "../domain/clock.ts";
import { resultWithin } from "../runtime/concurrency.ts";
import { httpAgent, readBoundedBytes, SHARED_AGENT } from "../runtime/http.ts";
import { assertPublicHost, NOT_PUBLIC_CODE, publicLookup } from "../runtime/public-addresses.ts";
import { CARD_BYTES_MAX } from "./reject-reasons.ts";

export type FetchFailure =
  | "unreachable"
  | "timed_out"
  | "address_not_public"
  /** A card's address is pinned, so it is not followed. */
  | "redirected"
  | "status_refused"
  | "media_type_refused"
  | "encoding_refused"
  | "too_large";

export type Fetched =
  | { readonly fetched: true; readonly bytes: Uint8Array }
  | { readonly fetched: false; readonly failure: FetchFailure; readonly status: number | undefined };

export interface FetchOptions {
  readonly clock: Clock;
  /** For the whole request, the body included. */
  readonly timeoutMs?: number;
  /** Whether the host may be at a private, loopback or link-local address; true when nothing is said. */
  readonly mayBePrivate?: boolean;
  /** Ends the request early; the failure is then `unreachable`. */
  readonly signal?: AbortSignal;
}

/** Longest icon that is taken. */
export const ICON_BYTES_MAX = 256 * 1024;
const TIMEOUT_MS = 10_000;
const CARD = {
  accept: "application/json",
  mediaType: /^application\/(?:json|a2a\+json)[ \t]*(?:;[ \t]*charset="?utf-8"?[ \t]*)?$/i,
  bytesMax: CARD_BYTES_MAX,
};
const ICON = {
  accept: "image/png, image/jpeg, image/webp, image/gif",
  mediaType: /^image\/(?:png|jpeg|webp|gif)$/i,
  bytesMax: ICON_BYTES_MAX,
};

/** Every failure is a value; nothing of the response but its status is reported. */
export const fetchCard = (url: string, options: FetchOptions) => fetchKind(url, CARD, options);
/** As a card is fetched. That the bytes are an image is not looked at. */
export const fetchIcon = (url: string, options: FetchOptions) => fetchKind(url, ICON, options);

const failed = (failure: FetchFailure, status?: number): Fetched => ({ fetched: false, failure, status });

async function fetchKind(url: string, kind: typeof CARD, options: FetchOptions): Promise<Fetched> {
  const ended = new AbortController();
  // A connection that another request left open would not be looked up again.
  const own = options.mayBePrivate === false ? httpAgent({ connect: { lookup: publicLookup() } }) : undefined;
  try {
    if (own !== undefined) assertPublicHost(url);
    const signals = [ended.signal, ...(options.signal === undefined ? [] : [options.signal])];
    const response = get(url, AbortSignal.any(signals), kind, own ?? SHARED_AGENT);
    return (
      (await resultWithin(options.clock, options.timeoutMs ?? TIMEOUT_MS, response)) ?? failed("timed_out")
    );
  } catch (error) {
    const isPrivate = (error as NodeJS.ErrnoException).code === NOT_PUBLIC_CODE;
    return failed(isPrivate ? "address_not_public" : "unreachable");
  } finally {
    ended.abort();
    await own?.destroy();
  }
}

async function get(
  url: string,
  signal: AbortSignal,
  { accept, mediaType, bytesMax }: typeof CARD,
  dispatcher: Dispatcher,
): Promise<Fetched> {
  const response = await request(url, {
    method: "GET",
    headers: { accept, "accept-encoding": "identity" },
    signal,
    dispatcher,
  });
  const { statusCode: status, headers, body } = response;
  const refused = (failure: FetchFailure) => {
    body.on("error", () => undefined).destroy();
    return failed(failure, status);
  };
  if (status >= 300 && status < 400) return refused("redirected");
  if (status !== 200) return refused("status_refused");
  if (!mediaType.test(String(headers["content-type"] ?? ""))) return refused("media_type_refused");
  const encoding = headers["content-encoding"];
  if (encoding !== undefined && encoding !== "identity") return refused("encoding_refused");
  if (Number(headers["content-length"] ?? 0) > bytesMax) return refused("too_large");

  const bytes = await readBoundedBytes(body, bytesMax);
  return bytes === undefined ? refused("too_large") : { fetched: true, bytes };
}
