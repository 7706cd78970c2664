// Which users are the bridge's own: the ghosts' namespace on this homeserver, and the appservice's user.
// Compared by exact prefix and exact server, never by pattern.
import {
  type GhostMxid,
  localpartOf,
  parseAgentId,
  type ServerName,
  serverOf,
  type UserId,
} from "../../domain/identifiers.ts";

export type Namespace = ReturnType<typeof createNamespace>;

export function createNamespace(options: {
  readonly serverName: ServerName;
  readonly ghostPrefix: string;
  readonly senderLocalpart: string;
}) {
  const isGhost = (user: UserId): user is GhostMxid =>
    serverOf(user) === options.serverName && localpartOf(user).startsWith(options.ghostPrefix);
  const sender = `@${options.senderLocalpart}:${options.serverName}`;
  return {
    isGhost,
    isOwn: (user: UserId) => user === sender || isGhost(user),
    /** The name in agents.yaml that a ghost stands for; undefined if no agent could have that name. */
    agentOf: (ghost: GhostMxid) => parseAgentId(localpartOf(ghost).slice(options.ghostPrefix.length)),
  };
}
