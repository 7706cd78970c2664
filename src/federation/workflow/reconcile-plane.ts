// Brings one plane to what is committed, as a step of a procedure.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { PlaneName } from "../plane-order.ts";
import type { ReconcileContext } from "../reconcile/context.ts";
import { type PassResult, runPass } from "../reconcile/pass.ts";

export interface ReconcileOptions {
  /** Applies also what is recorded as in force. */
  readonly again?: boolean;
  /** What helps where something was pushed on top of what was committed, and is refused; said before the rest. */
  readonly wayOut?: string | undefined;
}

/**
 * Brings one plane to the branch's head, as far as it goes.
 * @throws DrawbridgeError `head_refused` when what the branch holds is not taken up: what this machine has
 *   committed was good, and was pushed on before it was taken up
 */
export async function reconcilePlane(
  context: ReconcileContext,
  plane: PlaneName,
  { again = false, wayOut }: ReconcileOptions = {},
): Promise<PassResult> {
  const pass = await runPass(context, { plane, force: true, again });
  if (pass.refusal === undefined) return pass;
  const { detail, hint } = pass.refusal;
  throw new DrawbridgeError("head_refused", `what was committed is not in force: ${detail}`, {
    hint: wayOut === undefined ? hint : `${wayOut} ${hint}`,
  });
}
