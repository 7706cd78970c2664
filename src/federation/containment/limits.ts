// What containment and its restore cannot do, in the words that an operator is told.
import { TOKEN_LIFE_S } from "../../rendered-files/token-life.ts";
import type { Act } from "./record.ts";

/**
 * @param closedAtMs when the gateway plane was closed; undefined when that is not known yet
 */
export function limitsOfContainment(serverName: string, closedAtMs: number | undefined): readonly string[] {
  const until =
    closedAtMs === undefined
      ? `for up to ${TOKEN_LIFE_S} s after the gateway plane is closed`
      : `until ${new Date(closedAtMs + TOKEN_LIFE_S * 1_000).toISOString()} at the latest`;
  return [
    `What ${serverName} has replicated stays there: messages, files, membership and history of every shared room.`,
    `Access tokens that its client holds stay valid ${until}; the gateway refuses them already, other services may not.`,
    "Streams that were open at the gateway when it closed run to their end; only new calls are refused.",
    "The transport (plane 1) stays open, so that bans and ACLs reach its server; it is closed by removing the partner.",
  ];
}

export function limitsOfRestore(serverName: string): readonly string[] {
  return [
    `Nobody of ${serverName} is put back into a room: who was in it is invited again, and comes back by accepting.`,
    "Rooms that were replaced or retired stay so: the invitations are to the rooms that replace them.",
    "History that it has replicated was never taken back, and what it learned before stays known.",
    "What was said while it was contained arrives with its next events in rooms that were kept, on both sides.",
  ];
}

export function limitsOf(act: Act, serverName: string, closedAtMs?: number): readonly string[] {
  return act === "contain" ? limitsOfContainment(serverName, closedAtMs) : limitsOfRestore(serverName);
}
