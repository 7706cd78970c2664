// Carries a removal to its end as its two operators would: both at the same time run the step that `status` names
// next, and hand each other a file where one waits for the other.
// Invariant: steps that are done already are found, so that an interrupted workflow continues.
import { z } from "zod";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { NOT_PURGEABLE } from "../../src/federation/offboarding/duties/evidence.ts";
import { NOT_OUR_ROOM } from "../../src/federation/offboarding/stages/observation.ts";
import type { RoomReason } from "../../src/federation/planes/rooms/room-reasons.ts";
import { SOURCES } from "../lab.ts";
import { type CommandResult, commandFailed, type Operator } from "../observe/operator.ts";
import type { CompleteOrganisation } from "../organisations.ts";

const Block = z.object({
  stage: z.string().nullable(),
  plane: z.string().nullable(),
  condition: z.string(),
  probe: z.string(),
  found: z.string(),
  hint: z.string(),
});

/** The part of `drawbridge offboarding status` that the lab reads. */
export const RunStatus = z.object({
  run: z.string(),
  kind: z.string(),
  remover: z.string(),
  partner: z.string(),
  self: z.string(),
  openedAt: z.string(),
  /** Of an emergency: when planes 5, 4, 2 and 3 were closed at once. */
  containedAt: z.string().nullable(),
  ended: z.object({ how: z.enum(["completed", "aborted"]) }).nullable(),
  stages: z.array(
    z.object({
      stage: z.string(),
      planeNumber: z.int().nullable(),
      own: z.object({ state: z.string() }),
      openedAt: z.string().nullable(),
      provedAt: z.string().nullable(),
      blocks: z.array(Block),
    }),
  ),
  next: z.array(z.string()),
  waiting: z.object({ for: z.string(), what: z.string(), stage: z.string().nullable() }).nullable(),
  recordFile: z.string().nullable(),
});
export type RunStatus = z.output<typeof RunStatus>;

/** A stage that was just proved closed. */
export interface ClosedStage {
  readonly organisation: CompleteOrganisation;
  readonly stage: string;
  readonly planeNumber: number | null;
  readonly openedAt: number;
  readonly closedAt: number;
}

export interface WorkflowHooks {
  readonly closed: (stage: ClosedStage) => void;
  /** Before an organisation opens a stage; it waits. */
  readonly opening?: ((organisation: CompleteOrganisation, stage: string) => Promise<void>) | undefined;
  /** Of an emergency: its first step is done. */
  readonly contained: (organisation: CompleteOrganisation, at: number) => void;
  readonly note: (text: string) => void;
  readonly doing: (text: string) => void;
}

const WithStatus = z.object({ status: RunStatus });
const WithSigned = z.object({
  signed: z.array(z.string()).default([]),
  countersigned: z.array(z.string()).default([]),
});
const PurgePlan = z.object({ digest: z.string() });
/** An exit condition may hold only once other programs have followed: a step is tried this often. */
const TRIES_MAX = 12;
const PAUSE_MS = 1_000;
const SIGNED: readonly string[] = ["signed", "countersigned"];
/** What no operator can reach, with the reason for which its owner waives it. */
const WAIVED: ReadonlyMap<string, string> = new Map([
  [NOT_PURGEABLE, "homeserver_keeps_it"],
  [NOT_OUR_ROOM, "room_of_a_third_party"],
  // Where rooms are kept, rooms that cannot be closed are listed: the counterparty's own, and those of third parties.
  ["partner_created" satisfies RoomReason, "closed_by_its_owner"],
  ["left" satisfies RoomReason, "closed_by_its_owner"],
  ["no_power" satisfies RoomReason, "room_of_a_third_party"],
]);

/**
 * @returns the file of the remover's record
 * @throws DrawbridgeError `program_failed` when a stage cannot be proved closed, or neither side can go on
 */
export async function removeBetween(
  operators: readonly [Operator, Operator],
  run: string,
  hooks: WorkflowHooks,
): Promise<string> {
  const sides = operators.map((operator) => new Side(operator, run, hooks));
  await onBothSides(sides, (side) => side.status());
  // A file that was signed before an interruption may not have reached the other side: without new ones all are sent.
  for (let isAllSent = false; !sides.every((side) => side.isDone); ) {
    await onBothSides(sides, (side) => side.runSteps());
    const unsent = sides.filter((side) => side.hasUnsent);
    if (unsent.length === 0 && isAllSent) throw blocked(sides);
    isAllSent = unsent.length === 0;
    const senders = isAllSent ? sides.filter((side) => side.hasSigned) : unsent;
    const files = new Map(
      await onBothSides(senders, async (side) => [side, await side.exportFile()] as const),
    );
    await onBothSides(sides, async (side) => {
      for (const [sender, file] of files) if (sender !== side) await side.importFile(file);
    });
  }
  const [file] = sides.flatMap((side) => side.recordFile ?? []);
  if (file === undefined)
    throw new DrawbridgeError("program_failed", "the removal has ended without a record");
  return file;
}

/** Waits for both sides even where one fails, so that no command still runs afterwards. */
async function onBothSides<T>(
  sides: readonly Side[],
  act: (side: Side) => Promise<T>,
): Promise<readonly T[]> {
  const ended = await Promise.allSettled(sides.map(act));
  return ended.map((one) => {
    if (one.status === "rejected") throw one.reason;
    return one.value;
  });
}

class Side {
  readonly operator: Operator;
  readonly #runId: string;
  readonly #hooks: WorkflowHooks;
  readonly #reported = new Set<string>();
  #status: RunStatus | undefined;
  /** Something was signed that the other side has not received. */
  hasUnsent = false;
  /** The last signature is in the outbox already. */
  #isExported = false;

  constructor(operator: Operator, run: string, hooks: WorkflowHooks) {
    this.operator = operator;
    this.#runId = run;
    this.#hooks = hooks;
  }

  get isDone(): boolean {
    return this.#status?.ended?.how === "completed";
  }

  /** Whether there is anything to send. */
  get hasSigned(): boolean {
    return this.#status?.stages.some(({ own }) => SIGNED.includes(own.state)) ?? false;
  }

  get recordFile(): string | undefined {
    return this.#status?.recordFile ?? undefined;
  }

  get waitsFor(): string {
    const waiting = this.#status?.waiting;
    return `${this.operator.organisation}: ${waiting?.what ?? "nothing"} ${waiting?.stage ?? ""}`.trim();
  }

  /** Runs every step that this side can run now. */
  async runSteps(): Promise<void> {
    for (let tries = 0; ; ) {
      const { next, ended } = await this.status();
      const [verb] = next;
      if (ended !== null || (verb !== "next" && verb !== "sign" && verb !== "complete")) return;
      this.#hooks.doing(`${this.operator.organisation}: offboarding ${verb}`);
      if (verb === "complete") {
        this.#update(await this.#run(verb, "--probe-config", this.operator.probeFile), [0]);
        [this.hasUnsent, this.#isExported] = [true, false];
        continue;
      }
      if (verb === "sign") {
        const words = ["--probe-config", this.operator.probeFile, "--export", this.operator.outbox];
        this.#update(await this.#run(verb, ...words), [0]);
        continue;
      }
      const stage = this.#status?.stages.find(({ provedAt }) => provedAt === null);
      if (stage?.openedAt === null) await this.#hooks.opening?.(this.operator.organisation, stage.stage);
      const isProved = this.#update(await this.#run("next", ...this.#signing), [0, 5]);
      if (isProved) {
        tries = 0;
        continue;
      }
      tries += 1;
      const isChanged = await this.#clearBlocks();
      if (tries >= TRIES_MAX) throw notProved(this.operator, this.#status);
      if (!isChanged) await SOURCES.clock.sleep(PAUSE_MS);
    }
  }

  async exportFile(): Promise<string> {
    this.hasUnsent = false;
    if (!this.#isExported) {
      await this.operator.mustRun("offboarding", "export", this.operator.outbox, "--run-id", this.#runId);
    }
    return this.operator.outbox;
  }

  async importFile(file: string): Promise<void> {
    this.#update(await this.#run("import", file, ...this.#signing), [0]);
  }

  /** Signs at once what can be signed, and exports it for the other side. */
  get #signing(): readonly string[] {
    return ["--probe-config", this.operator.probeFile, "--sign", "--export", this.operator.outbox];
  }

  /** The run's status; requested once, since every command reports it. */
  async status(): Promise<RunStatus> {
    if (this.#status === undefined) {
      this.#status = RunStatus.parse((await this.#run("status")).output);
      for (const { stage, provedAt } of this.#status.stages) if (provedAt !== null) this.#reported.add(stage);
    }
    return this.#status;
  }

  #run(verb: string, ...words: readonly string[]): Promise<CommandResult> {
    return this.operator.run(["offboarding", verb, ...words, "--run-id", this.#runId]);
  }

  /** @returns whether it ended with 0 */
  #update(result: CommandResult, codes: readonly number[]): boolean {
    const { code, output } = result;
    if (!codes.includes(code)) throw commandFailed(this.operator.organisation, ["offboarding"], result);
    const { signed, countersigned } = WithSigned.parse(output);
    if (signed.length + countersigned.length > 0) [this.hasUnsent, this.#isExported] = [true, true];
    const before = this.#status?.containedAt ?? null;
    this.#status = WithStatus.parse(output).status;
    const { containedAt } = this.#status;
    if (before === null && containedAt !== null) {
      this.#hooks.contained(this.operator.organisation, Date.parse(containedAt));
    }
    for (const { stage, planeNumber, openedAt, provedAt } of this.#status.stages) {
      if (openedAt === null || provedAt === null || this.#reported.has(stage)) continue;
      this.#reported.add(stage);
      this.#hooks.closed({
        ...{ organisation: this.operator.organisation, stage, planeNumber },
        openedAt: Date.parse(openedAt),
        closedAt: Date.parse(provedAt),
      });
    }
    return code === 0;
  }

  /** Purges what the record says, by a dry run and its digest. */
  async #purge(): Promise<void> {
    const { operator } = this;
    const { digest } = PurgePlan.parse(
      await operator.mustRun("offboarding", "purge", operator.counterparty, "--dry-run"),
    );
    const { code } = await operator.run(["offboarding", "purge", operator.counterparty, "--confirm", digest]);
    this.#hooks.note(
      `${operator.organisation} has purged what its record says${code === 0 ? "" : ", and names what is left"}`,
    );
  }

  /**
   * Purges, and waives what no interface can reach; its owner is named by role.
   * @returns whether there was anything to do
   */
  async #clearBlocks(): Promise<boolean> {
    const blocks = this.#status?.stages.flatMap((stage) => stage.blocks) ?? [];
    let isChanged = blocks.some(({ condition }) => condition === "deletion_recorded");
    if (isChanged) await this.#purge();
    for (const { condition, probe, found } of blocks) {
      const reason = WAIVED.get(probe) ?? WAIVED.get(found);
      if (condition !== "out_of_reach" || reason === undefined) continue;
      this.#update(await this.#run("waive", probe, "--reason", reason), [0]);
      isChanged = true;
      this.#hooks.note(`${this.operator.organisation} waives ${probe} (${found})`);
    }
    return isChanged;
  }
}

function blocked(sides: readonly Side[]): DrawbridgeError {
  return new DrawbridgeError(
    "program_failed",
    `neither side can go on: ${sides.map(({ waitsFor }) => waitsFor).join("; ")}`,
    { hint: "See drawbridge offboarding status on both sides." },
  );
}

function notProved({ organisation }: Operator, status: RunStatus | undefined): DrawbridgeError {
  const blocks = status?.stages.flatMap((stage) => stage.blocks) ?? [];
  const lines = blocks.map(
    ({ stage, condition, found, hint }) => `  ${stage} ${condition}: ${found} (${hint})`,
  );
  return new DrawbridgeError(
    "program_failed",
    [`${organisation} cannot prove a stage closed:`, ...lines].join("\n"),
  );
}
