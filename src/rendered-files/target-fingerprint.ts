// The fingerprint of a target: one agent at one address under one pinned key.
import { canonicalize } from "../domain/canonical-json.ts";
import { sha256Tagged } from "../domain/digest.ts";
import type { AgentEntry } from "./agents-file.ts";

/** SHA-256 over RFC 8785 text, so that it does not depend on how the file is written. */
export function targetFingerprint(
  agentId: string,
  entry: Pick<AgentEntry, "cardUrl" | "cardIdentity">,
): string {
  const identity = entry.cardIdentity;
  return sha256Tagged(
    canonicalize({
      agentId,
      cardUrl: entry.cardUrl,
      cardIdentity:
        identity === undefined
          ? null
          : { keyId: identity.keyId, jwk: { kty: "EC", crv: "P-256", x: identity.jwk.x, y: identity.jwk.y } },
    }),
  );
}
