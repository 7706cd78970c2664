// Probes whose items the walk itself states, from what is declared and written down rather than from an answer.

/** What the reconciler has reached on a plane. */
export const RECONCILED = "reconciled";
/** Where an organisation has no such part. */
export const NOTHING_THERE = "nothing_declared";
/** Where the bridge carries none of the counterparty's agents. */
export const NO_PINS = "no_pins_declared";
/** A plane that this kind of removal leaves alone. */
export const LEFT_ALONE = "left_alone";
/** The rendered files of a plane. */
export const RENDER = "render";
/** A card that stays public for others: the counterparty's use of it was refused in stage 1. */
export const CARD_USE = "card_use";
/** A line of the border's violations. */
export const VIOLATION = "violation";
/** A purge that was waived. */
export const PURGE_WAIVED = "purge_waived";
/** The private record's duties. */
export const DUTIES = "duties";
/** The tests that need no server. */
export const STATIC_TESTS = "check_federation";
/** Why a room of a third party is out of reach: nobody here may close it. */
export const NOT_OUR_ROOM = "not_our_room";
