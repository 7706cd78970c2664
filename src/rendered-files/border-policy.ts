// policy.json: which servers the border module inside the homeserver lets in (plane 3).
// The module is the one that enforces it, and checks all of this again.
import * as z from "zod";
import { canonicalize } from "../domain/canonical-json.ts";
import { sha256Tagged } from "../domain/digest.ts";
import { ServerNameField } from "../domain/identifier-fields.ts";

export const PolicyFile = z.strictObject({
  /** Exact server names, ports included, the homeserver's own among them. Empty, or without it: deny all. */
  allowed_servers: z.array(ServerNameField),
  /** `deny_all`: no invitation from outside. Absent: invitations from allowed servers pass. */
  invite_rule: z.literal("deny_all").optional(),
});
export type PolicyFile = z.output<typeof PolicyFile>;

/** Over the policy's canonical form (RFC 8785), the servers sorted without duplicates, an absent `invite_rule` null. */
export function policyDigest(policy: PolicyFile): string {
  return sha256Tagged(
    canonicalize({
      allowed_servers: [...new Set(policy.allowed_servers)].sort(),
      invite_rule: policy.invite_rule ?? null,
    }),
  );
}
