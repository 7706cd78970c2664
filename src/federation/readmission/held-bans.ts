// Whether a partner's server has learned of the bans of its users. An event that it never got cannot be built
// on: its people could then never join the room again.
// Invariants: asked of that server, never concluded; a refusal that it gives everybody says nothing, so a 403
// counts only beside a control question that it answers otherwise.
import { encodeBase64url } from "../../domain/base64url.ts";
import { sha256 } from "../../domain/digest.ts";
import type { ServerName } from "../../domain/identifiers.ts";
import type { SignedRequests } from "../homeserver/signed-request.ts";
import { sideBySide } from "../planes/rooms/side-by-side.ts";

const ASK_TIMEOUT_MS = 10_000;
const AT_ONCE = 2;

/**
 * @param events of the bans; undefined: which event it was is not known
 * @returns `no` when one of them is missing there; `unknown` when one cannot be told
 */
export async function holdsBans(
  signed: Pick<SignedRequests, "request">,
  partner: ServerName,
  events: readonly (string | undefined)[],
): Promise<"yes" | "no" | "unknown"> {
  const statusOf = (event: string) => statusFor(signed, partner, event);
  const answers = await sideBySide([...events], AT_ONCE, async (event) => {
    if (event === undefined) return "unknown" as const;
    const status = await statusOf(event);
    if (status === 200) return "yes" as const;
    if (status === 404) return "no" as const;
    if (status !== 403) return "unknown" as const;
    // A server whose last user was banned is in the room no more, and shows nobody its events; one that it does
    // not have it still calls not found. Refused both: it talks to nobody, or not to us.
    return (await statusOf(nobodysEvent(event))) === 404 ? ("yes" as const) : ("unknown" as const);
  });
  if (answers.includes("no")) return "no";
  return answers.includes("unknown") ? "unknown" : "yes";
}

/** The name of an event that nobody has made. */
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
    return (await signed.request(partner, "GET", path, undefined, ASK_TIMEOUT_MS)).status;
  } catch {
    return undefined;
  }
}
