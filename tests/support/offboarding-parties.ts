// Two organisations with a run that both have opened, for tests of what may and may not be done in it.
import { runPass } from "../../src/federation/reconcile/pass.ts";
import type { Kind, Trigger } from "../../src/records/format/stages.ts";
import { A, B, makeParties, openRunAt, openSide, type Side, type SideOptions } from "./offboarding.ts";
import { stepAt } from "./offboarding-steps.ts";
import { temporaryFolder } from "./temporary.ts";

export interface Parties {
  readonly directory: string;
  /** The remover. */
  readonly a: Side;
  readonly b: Side;
  readonly run: string;
  /** Hands over what is signed. */
  readonly pass: (from: Side, to: Side) => Promise<void>;
  /** Walks so many stages to both signatures. */
  readonly walk: (stages: number) => Promise<void>;
}

export async function openParties(
  t: Parameters<typeof temporaryFolder>[0],
  options: SideOptions & {
    readonly kind?: Kind;
    /** The remover's when absent. */
    readonly partnersTrigger?: Trigger | undefined;
    readonly lacks?: Readonly<Record<string, readonly string[]>>;
  } = {},
): Promise<Parties> {
  const directory = temporaryFolder(t);
  const { kind = "full", lacks, partnersTrigger: trigger } = options;
  await makeParties(directory, lacks === undefined ? {} : { lacks });
  const a = await openSide(directory, A, options);
  const b = await openSide(directory, B, options);
  for (const side of [a, b]) await runPass(side.federation);
  const { run } = await openRunAt(a, { kind });
  await openRunAt(b, { kind, run, ...(trigger !== undefined && { trigger }) });
  const pass = async (from: Side, to: Side) => {
    await stepAt(directory, from, "export");
    await stepAt(directory, to, "import");
  };
  const walk = async (stages: number) => {
    for (let stage = 0; stage < stages; stage++) {
      await stepAt(directory, a, "next");
      await stepAt(directory, a, "sign");
      await stepAt(directory, b, "next");
      await pass(a, b);
      await stepAt(directory, b, "sign");
      await pass(b, a);
      await stepAt(directory, a, "sign");
      await pass(a, b);
    }
  };
  return { directory, a, b, run, pass, walk };
}
