// What becomes of a room that cannot be closed to a partner, or that is to end with it: replaced, retired, or kept and named.
// Invariant: a room is replaced or retired only where the registry's entry of a partner that it concerns says so.
import type { SettledRoom } from "./close-one-room.ts";
import type { ClosingPartner } from "./render.ts";
import type { RoomReason } from "./room-reasons.ts";

const NOT_OURS = ["no_power", "partner_holds_power", "partner_created", "acl_too_long", "left"] as const;
const UNCLOSABLE: ReadonlySet<string> = new Set(NOT_OURS satisfies readonly RoomReason[]);

/** What happens to a room at the end of a pass, by the entries of the partners that it concerns. */
export function endOf({ plan: { concerned }, obstacles }: SettledRoom): "replace" | "retire" | undefined {
  const blocked = concerned.filter(({ serverName }) =>
    obstacles.some(({ partner, reason }) => partner === serverName && UNCLOSABLE.has(reason)),
  );
  if (blocked.some(({ unclosable }) => unclosable === "replace")) return "replace";
  if (blocked.length > 0) return undefined;
  const wants = (after: ClosingPartner["after"]) => concerned.some((partner) => partner.after === after);
  if (wants("replace")) return "replace";
  return wants("retire") && obstacles.length === 0 ? "retire" : undefined;
}
