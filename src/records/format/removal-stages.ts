// The stages of a removal, in their order, and which of them each kind of removal closes.
// Invariant: the order is that in which stages are listed everywhere, and its numbers begin at 1.

export const PLANE_NAMES = ["transport", "rooms", "border", "card", "gateway"] as const;
export type PlaneName = (typeof PLANE_NAMES)[number];

/** The plane of each stage, in the order of a removal; the duties that follow have none. */
export const PLANE_OF_STAGE = {
  a2a_stop: "gateway",
  a2a_discovery: "card",
  room: "rooms",
  policy_border: "border",
  transport: "transport",
  data_duties: null,
} as const satisfies Readonly<Record<string, PlaneName | null>>;
export type StageName = keyof typeof PLANE_OF_STAGE;
export const STAGE_NAMES = Object.keys(PLANE_OF_STAGE) as readonly StageName[];

export const KINDS = ["full", "partial", "emergency"] as const;
export type Kind = (typeof KINDS)[number];
export const TRIGGERS = ["planned_departure", "contract_end", "suspected_compromise"] as const;
export type Trigger = (typeof TRIGGERS)[number];

/** Stages in which a removal of this kind closes something on the remover's side. */
export const STAGES_OF_REMOVER: Readonly<Record<Kind, readonly StageName[]>> = {
  full: ["room", "policy_border", "transport", "data_duties"],
  partial: ["a2a_discovery"],
  emergency: ["room", "policy_border", "transport", "data_duties"],
};

export const STAGES_LEFT_ALONE: Readonly<Record<Kind, readonly StageName[]>> = {
  full: [],
  partial: ["room", "policy_border", "transport"],
  emergency: [],
};

export function counterpartyOf(self: string, removal: Readonly<Record<"remover" | "partner", string>>) {
  return self === removal.remover ? removal.partner : removal.remover;
}

export const positionOf = (stage: StageName): number => STAGE_NAMES.indexOf(stage) + 1;

/** Every statement of a removal, in the order of a record: stage by stage, the remover's first. */
export function statementOrder(remover: string, partner: string) {
  return STAGE_NAMES.flatMap((stage) => [remover, partner].map((organisation) => ({ organisation, stage })));
}
