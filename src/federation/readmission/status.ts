// Where a re-admission stands, from its file alone.
import { READMISSION } from "../workflow/procedure.ts";
import { labelOf, type StepStatus } from "../workflow/status.ts";
import type { Readmission } from "./readmission.ts";

export interface ReadmissionStatus
  extends Pick<Readmission, "id" | "partner" | "approval" | "rooms" | "touched"> {
  readonly openedAt: string;
  readonly completedAt: string | null;
  readonly done: boolean;
  readonly steps: readonly StepStatus<"pending" | "proving" | "proved">[];
}

export function readmissionStatus(readmission: Readmission): ReadmissionStatus {
  const {
    id,
    partner,
    approval,
    rooms,
    touched,
    stages,
    opened_at: openedAt,
    completion,
    done,
  } = readmission;
  return {
    ...{ id, partner, approval, rooms, touched, openedAt, done },
    completedAt: done ? (completion?.at ?? null) : null,
    steps: READMISSION.steps.map((step) => {
      const stage = stages.find(({ plane }) => plane === step.plane);
      const provedAt = stage?.proved_at ?? null;
      const commit = stage?.revision ?? null;
      const state = provedAt !== null ? "proved" : commit !== null ? "proving" : "pending";
      return {
        ...labelOf(step),
        ...{ own: { state, since: provedAt }, other: null, commit, openedAt: null, provedAt, blocks: [] },
      };
    }),
  };
}
