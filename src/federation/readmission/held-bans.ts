// Whether a partner's server has received the bans of its users in a room. A server that never got them still
// considers itself in the room, and builds on state that does not hold: its people could never join the room again.
// Invariants: asked of that server, never concluded; a refusal that it gives everybody says nothing, so a 403
// counts only beside a control question that it answers otherwise. Not found is what a homeserver says of an
// event; a proxy before it, or a server that does not know the question, says nothing of one.
import { encodeBase64url } from "../../domain/base64url.ts";
import { sha256 } from "../../domain/digest.ts";
import type { ServerName } from "../../domain/identifiers.ts";
import { mapConcurrent } from "../../runtime/concurrency.ts";
import type { FederationAnswer, SignedRequests } from "../homeserver/signed-request.ts";

const ASK_TIMEOUT_MS = 10_000;
const AT_ONCE = 2;

/**
 * @param events of the bans; undefined: which event it was is not known
 * @returns `no` when it is still in the room and lacks one of them; `unknown` when its answers do not say
 */
export async function holdsBans(
  signed: Pick<SignedRequests, "request">,
  partner: ServerName,
  events: readonly (string | undefined)[],
): Promise<"yes" | "no" | "unknown"> {
  const statuses = await mapConcurrent([...events], AT_ONCE, async (event) =>
    event === undefined ? undefined : statusFor(signed, partner, event),
  );
  // A server whose last user was banned is not in the room any more, and refuses to show the events that it has; of an
  // event that it does not have it still says not found. Such a server joins with the room's state of that time:
  // users whose bans it lacks had left when the last was banned. If it refuses both, it answers nobody, or not us.
  const refused = events[statuses.indexOf(403)];
  if (refused !== undefined) {
    return (await statusFor(signed, partner, nobodysEvent(refused))) === 404 ? "yes" : "unknown";
  }
  if (statuses.includes(404)) return "no";
  return statuses.every((status) => status === 200) ? "yes" : "unknown";
}

/** The ID of an event that does not exist. */
function nobodysEvent(event: string): string {
  return `$${encodeBase64url(sha256(`nobody's event beside ${event}`))}`;
}

async function statusFor(
  signed: Pick<SignedRequests, "request">,
  partner: ServerName,
  event: string,
): Promise<number | undefined> {
  try {
    const path = `/_matrix/federation/v1/event/${encodeURIComponent(event)}`;
    const answer = await signed.request(partner, "GET", path, undefined, ASK_TIMEOUT_MS);
    return answer.status !== 404 || isNotFound(answer) ? answer.status : undefined;
  } catch {
    return undefined;
  }
}

/** Synapse writes no errcode there, and an empty text for a body. */
function isNotFound({ isJson, errcode }: FederationAnswer): boolean {
  return isJson && (errcode === undefined || errcode === "M_NOT_FOUND");
}
