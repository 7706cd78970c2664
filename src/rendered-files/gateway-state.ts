// state.json: what a gateway has in force, written by the gateway for federation control (planes 4 and 5).
// Invariants: a digest stands here only after Envoy has reported every version that came of it; the file is
// replaced whole. Published as docs/reference/schemas/gateway-state.schema.json.

import { z } from "zod";
import { Sha256Digest } from "../domain/digest.ts";

/** Why a file is not in force. */
export const RefusalReason = z.enum([
  /** It is not there, or may not be read. */
  "unreadable",
  /** It is no valid file by itself, or contradicts another. */
  "invalid",
  /** Envoy does not accept what was rendered from it. */
  "refused_by_envoy",
  /** It changes what only a new start can take up. */
  "needs_restart",
]);
export type RefusalReason = z.output<typeof RefusalReason>;

export const FollowedFile = z.enum(["invocation", "publication", "gateway"]);
export type FollowedFile = z.output<typeof FollowedFile>;

export const GatewayState = z.strictObject({
  version: z.literal(1),
  /** SHA-256, tagged, of the bytes of the file in force. */
  publication: Sha256Digest,
  invocation: Sha256Digest,
  /** When this came into force, UTC. */
  since: z.iso.datetime(),
  /** A file that is there and not in force; the last good one is. Of several, the first by this order. */
  refused: z
    .strictObject({
      file: FollowedFile,
      /** Of the refused bytes; null when they could not be read. */
      digest: Sha256Digest.nullable(),
      reason: RefusalReason,
      at: z.iso.datetime(),
    })
    .nullable(),
});
export type GatewayState = z.output<typeof GatewayState>;
