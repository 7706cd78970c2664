// What one attempt found, before it is sealed as evidence: the layer that answered, by status code and the form of the body,
// and what that means. Invariants: nothing of an answer's body goes on from here, only words of closed sets; only an answer
// that refuses is `closed`; an attempt that was not made or not answered, an error of a server, a quota or a broken request
// is `unknown`.
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { visibleId } from "../../domain/identifiers.ts";
import { membersOf, parseJson } from "../../domain/json.ts";
import { wasNotTried } from "../../records/conditions/evaluate.ts";
import { type EvidenceItemBody, evidenceItem } from "../../records/format/evidence-item.ts";
import { Word } from "../../records/format/fields.ts";
import type { MatrixAnswer } from "../homeserver/api.ts";
import type { PlaneName } from "../plane-order.ts";

/** The layers are in docs/reference/federation.md. */
export type ProbeResult = Pick<EvidenceItemBody, "verdict" | "layer" | "status" | "reason"> & {
  readonly references?: readonly string[];
};

export type Attempt = () => Promise<ProbeResult> | ProbeResult;

export type ProbeSubject = Pick<EvidenceItemBody, "plane" | "partner" | "vantage" | "subject"> & {
  readonly probe: OutsideProbe;
};

/** Every probe from outside, with the planes that it must pass: one of them closed, and it is to be refused. */
export const OUTSIDE_PROBES = {
  token_request: ["gateway"],
  invoke: ["gateway"],
  card_fetch: ["card"],
  federation_send: ["transport"],
  invite: ["transport", "border"],
  make_join: ["transport", "border", "rooms"],
  make_join_at_witness: ["rooms"],
  remote_join: ["transport", "border", "rooms"],
  remote_join_via_witness: ["rooms"],
  message_to_target: ["transport", "border", "rooms"],
  message_to_target_via_witness: ["transport", "border", "rooms"],
  state_to_target: ["transport", "border", "rooms"],
  state_to_target_via_witness: ["transport", "border", "rooms"],
  message_to_partner: ["transport", "rooms"],
  message_to_partner_via_witness: ["transport", "rooms"],
  event_at_target: ["transport", "rooms"],
  event_at_witness: ["rooms"],
  backfill_at_target: ["transport", "rooms"],
  backfill_at_witness: ["rooms"],
} as const satisfies Readonly<Record<string, readonly PlaneName[]>>;
export type OutsideProbe = keyof typeof OUTSIDE_PROBES;

const notTried = (kind: string) => (why: string) =>
  ({ verdict: "unknown", layer: "none", status: null, reason: `${kind}:${why}` }) satisfies ProbeResult;
export const notConfigured = notTried("not_configured");
export const notApplicable = notTried("not_applicable");

/** Whether an item says open only because the registry keeps the card public for others: a card is so for everybody. */
export function isPublicForOthers({ verdict, reason }: EvidenceItemBody): boolean {
  return verdict === "open" && (reason === "published_always" || reason === "consumed_by_others");
}

/** Reads an exception of the network: nobody answered, so nothing can be said. */
export function unreachable(error: unknown): ProbeResult {
  const name = error instanceof Error ? error.name : "";
  const reason = name === "TimeoutError" || name === "AbortError" ? "timed_out" : "unreachable";
  return { verdict: "unknown", layer: "network", status: null, reason };
}

/** Makes the attempt, times it, and seals what it found. What the attempt throws becomes `unknown`. */
export async function observe(subject: ProbeSubject, clock: Clock, attempt: Attempt) {
  const startedAt = clock.now();
  let finding: ProbeResult;
  try {
    finding = await attempt();
  } catch (error) {
    // A secret that cannot be read is the configuration's fault, and says nothing about anybody.
    if (error instanceof DrawbridgeError) throw error;
    finding = unreachable(error);
  }
  const { references = [], ...found } = finding;
  return evidenceItem({
    schema: "svc.federation.evidence_item.v1",
    ...subject,
    subject: subject.subject === null ? null : visibleId(subject.subject),
    ...found,
    references: references.filter((reference) => reference !== "").map(visibleId),
    at: new Date(startedAt).toISOString(),
    duration_ms: found.layer === "none" ? null : clock.now() - startedAt,
  });
}

export interface ProbeAnswer {
  readonly status: number;
  readonly contentType: string;
  /** At most 64 KiB. */
  readonly text: string;
}

/** An answer's code; none that begins as a reason of ours does, such as that for which a probe was left out. */
function wordOf(value: unknown): string | null {
  const word = Word.safeParse(value).data;
  return word === undefined || wasNotTried({ reason: word }) ? null : word;
}

// RFC 6749, section 5.2: these refuse the client; the others of that section refuse the form of the request.
const CLIENT_REFUSED: readonly unknown[] = ["invalid_client", "unauthorized_client", "access_denied"];

/** A token endpoint's answer to client credentials (RFC 6749, section 4.4). */
export function readTokenAnswer(answer: ProbeAnswer): ProbeResult & { readonly token?: string } {
  const body = membersOf(parseJson(answer.text));
  const found = { layer: "issuer", status: answer.status } as const;
  const token = body["access_token"];
  if (answer.status === 200 && typeof token === "string" && token !== "")
    return { ...found, verdict: "open", reason: "token_issued", token };
  const refused = (answer.status === 400 || answer.status === 401) && CLIENT_REFUSED.includes(body["error"]);
  return { ...found, verdict: refused ? "closed" : "unknown", reason: wordOf(body["error"]) };
}

// What gateways write into the bodies of their own refusals: Envoy, and the last three agentgateway.
const GATEWAY_REFUSALS: readonly (readonly [statuses: number[], sentence: RegExp, reason: string])[] = [
  [[403], /^RBAC: access denied$/, "rbac_access_denied"],
  [[401], /^Jwt is missing$/, "jwt_missing"],
  [[401], /^Jwt is expired$/, "jwt_expired"],
  [[401, 403], /^(?:Jwt |Audiences in Jwt |Jwks doesn't have key )/, "jwt_refused"],
  [[404], /^(?:route not found)?$/, "no_route"],
  [[401], /^authentication failure: /, "unauthorized"],
  [[403], /^authorization failed$/, "forbidden"],
];

const PLAIN_REASONS: Readonly<Record<number, string>> = {
  401: "unauthorized",
  403: "forbidden",
  404: "not_found",
  429: "rate_limited",
};

/** A 404 without a body is the gateway's, with one the agent's. That a gateway refused is known by its own sentence alone. */
export function readInvokeAnswer(answer: ProbeAnswer): ProbeResult {
  const { status } = answer;
  const text = answer.text.trim();
  const isJson = /^application\/(?:[a-z0-9.+-]*\+)?json\b/i.test(answer.contentType);
  if (isJson && text !== "" && (status < 400 || status === 404))
    return { verdict: "open", layer: "agent", status, reason: "answered" };
  const refusal = GATEWAY_REFUSALS.find(([codes, sentence]) => codes.includes(status) && sentence.test(text));
  if (refusal !== undefined) return { verdict: "closed", layer: "gateway", status, reason: refusal[2] };
  // The quota stands behind the authorization: who meets it was let in.
  if (status === 429) return { verdict: "open", layer: "gateway", status, reason: "rate_limited" };
  return { verdict: "unknown", layer: "gateway_or_agent", status, reason: PLAIN_REASONS[status] ?? null };
}

export function readCardAnswer(answer: ProbeAnswer): ProbeResult {
  const { status } = answer;
  if (status === 200) return { verdict: "open", layer: "gateway", status, reason: "published" };
  if (status === 404) return { verdict: "closed", layer: "gateway", status, reason: "no_route" };
  return { verdict: "unknown", layer: "gateway", status, reason: PLAIN_REASONS[status] ?? null };
}

// The sentences that distinguish Synapse's layers; other homeservers answer with the code alone.
const HOMESERVER_SENTENCES: readonly (readonly [RegExp, string, string])[] = [
  [/^Federation denied with /, "transport", "federation_denied"],
  [/^Server is banned from room$/, "room_acl", "server_banned"],
  [/^You are banned from this room/, "room_ban", "user_banned"],
  [/^@.* is banned from the room/su, "room_ban", "user_banned"],
  [/^Host not in room/, "room_membership", "no_member"],
  [/^You are not invited to this room/, "room_rules", "not_invited"],
  [/^This room has been blocked on this server/, "homeserver", "room_blocked"],
  [/^This event is not allowed in this context/, "border", "not_allowed"],
  // An invitation that the border drops is answered with the code in the place of the sentence.
  [/^M_FORBIDDEN$/, "border", "dropped"],
  [/^This user is not permitted to send invites to this server\/user$/, "border", "invite_refused"],
];

export function homeserverRefusal(answer: MatrixAnswer): ProbeResult | undefined {
  if (answer.status !== 403) return undefined;
  const { error } = answer.body;
  const known = HOMESERVER_SENTENCES.find(([sentence]) => typeof error === "string" && sentence.test(error));
  const [, layer, reason] = known ?? [undefined, "homeserver" as const, wordOf(answer.errcode)];
  // Heard, and refused by the room itself: every plane was passed.
  const verdict = layer === "room_rules" ? "open" : "closed";
  return { verdict, layer, status: answer.status, reason };
}

const NO_SUCH_ROOM = [/^Not an active room on this server/, /^Could not find room_version for /];

/** Whether a homeserver says that it is not in the room; one that is still joining says something else. */
export function isNoRoomOf({ status, body }: MatrixAnswer): boolean {
  const { error } = body;
  return status === 404 && typeof error === "string" && NO_SUCH_ROOM.some((sentence) => sentence.test(error));
}

export function homeserverUnclear(answer: MatrixAnswer): ProbeResult {
  return { verdict: "unknown", layer: "homeserver", status: answer.status, reason: wordOf(answer.errcode) };
}

export function readHomeserverAnswer(answer: MatrixAnswer, references: readonly string[] = []): ProbeResult {
  if (answer.status === 200)
    return { verdict: "open", layer: "homeserver", status: 200, reason: "accepted", references };
  return { ...(homeserverRefusal(answer) ?? homeserverUnclear(answer)), references };
}
