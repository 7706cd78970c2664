// What keeps a step from being done: each with what was tried, what it got and what to do. What a stage demands
// stands in its own file in ../stages.
import { DrawbridgeError } from "../../../domain/errors.ts";
import type { StageName } from "../../../records/format/stages.ts";
import type { PlaneName } from "../../planes/names.ts";

export interface Block {
  readonly stage: StageName | null;
  readonly plane: PlaneName | null;
  readonly condition: string;
  readonly probe: string;
  readonly found: string;
  readonly hint: string;
}

/** One line a block; the hint is that of the first. */
export class OffboardingBlocked extends DrawbridgeError {
  readonly blocks: readonly Block[];

  constructor(what: string, blocks: readonly Block[]) {
    const lines = blocks.map(({ stage, plane, condition, probe, found }) => {
      const where = [stage, plane === null ? undefined : `plane ${plane}`].filter(Boolean).join(", ");
      return `  ${where === "" ? "" : `${where}: `}${condition} [${probe}]: ${found}`;
    });
    super("offboarding_blocked", [what, ...lines].join("\n"), { hint: blocks[0]?.hint ?? "" });
    this.name = "OffboardingBlocked";
    this.blocks = blocks;
  }
}
