// Why a room is not where it should be: the closed set of reasons that the rooms plane names, and what an operator
// does about each. Published in docs/reference/rooms-plane.md.
export const ROOM_REASONS = {
  no_power:
    "Have somebody with the power in the room raise one of our users, or set whenUnclosable to replace.",
  partner_holds_power:
    "Have a user above the partner's lower its power in the room, or set whenUnclosable to replace.",
  partner_created:
    "A creator of this room version cannot be removed. Set whenUnclosable to replace, or take our users out.",
  left: "Nobody of ours is in the room. Set whenUnclosable to replace, and it is blocked here.",
  no_actor:
    "The users who have the power are locked or suspended, or the homeserver lends no token: join the operator by make_room_admin.",
  would_deny_retained:
    "The ACL would deny a server whose users are in the room: register it as a partner, or take its users out.",
  acl_too_long:
    "Others have filled the ACL of this room: have its owner shorten it, or set whenUnclosable to replace.",
  unreadable_member:
    "A membership in the room names no server, so it may be the partner's: replace the room, or take our users out.",
  unread:
    "The homeserver does not give the state of this room, which another server may owe it: delete the room here.",
  not_read_only:
    "Nobody of ours may change the levels of this room: have somebody who may raise `events_default`.",
  refused: "The homeserver refused a step in this room: read its log at this time, then reconcile again.",
  unsettled: "The partner's users keep coming back: look at who invites them, then reconcile again.",
  being_banned:
    "Very many users of the partner are in the room or invited; its server is denied, and the next pass goes on with them.",
  stale_at_home: "The homeserver still enforces an older ACL in this room: restart it.",
  unproven_at_home:
    "Nothing says what the homeserver enforces: load the border module, and check border.statusToken.",
  unproven_at_retained:
    "This server did not show the ACL in time and may let the partner in: ask its operator, then reconcile again.",
  not_invited:
    "The partner's server did not answer, so its users are not invited again: see that it runs, then reconcile again.",
  being_invited:
    "Invitations take long, because the homeserver limits them: the next pass goes on with them.",
  not_replaced: "The new room could not be completed: read the homeserver's log, then reconcile again.",
  left_out:
    "The room is replaced, and users of ours could not join, or another server did not answer: see who is missing in the new room.",
  journal_damaged:
    "A line of this partner's journal cannot be read: correct it, or put the file back from a backup; until then nothing is opened again to the partner.",
  not_deleted: "The homeserver did not finish taking the old room away: read its log, then reconcile again.",
} as const;

export type RoomReason = keyof typeof ROOM_REASONS;
