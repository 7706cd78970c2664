// Closes one plane for the counterparty in a commit of its own; the last one retires its identities. Invariants: one commit a stage of a run,
// however often it is tried: it is found again by what its message says; the branch moves only from what the
// commit was built on.
import { DrawbridgeError } from "../../../domain/errors.ts";
import type { StageName } from "../../../records/format/stages.ts";
import { setAsideLines } from "../../change/base.ts";
import { commitChange } from "../../change/commit-change.ts";
import { setPlane, setRetired } from "../../change/edit-partner.ts";
import { PLANE_NUMBERS, type PlaneName } from "../../plane-order.ts";
import type { Federation } from "../../reconcile/context.ts";
import { findPartner } from "../../registry/find-partner.ts";
import { applicantsOf, type Partner } from "../../registry/partner.ts";
import { thumbprintsElsewhere } from "../../registry/retired-checks.ts";
import { gitLine } from "../../repository/git.ts";
import { parseRevision, type Repository, type Revision } from "../../repository/repository.ts";
import { removal } from "../../workflow/procedure.ts";
import { counterpartyOf, type Run } from "../run/run.ts";

/**
 * @param admits given the partner as it is on the head that the commit is built on, throws to have nothing happen;
 *   called again where the branch has moved meanwhile
 * @returns the commit that closes the plane in this run
 * @throws DrawbridgeError `usage`, `head_refused`, `config_invalid`, `repository_unusable`; RegistryError
 */
export async function commitStage(
  federation: Federation,
  run: Run,
  stage: StageName,
  plane: PlaneName,
  admits: (partner: Partner) => void,
): Promise<Revision> {
  let found: Revision | undefined;
  const { revision } = await commitChange(federation, {
    reason: `drawbridge: offboarding ${stage}`,
    onBadHead: removal(run.kind).onBadHead,
    propose: async (base) => {
      found = await stageCommit(federation.repository, run, stage);
      if (found !== undefined) return undefined;
      const { file, partner } = findPartner(base.registry, counterpartyOf(run));
      admits(partner);
      const message = [
        `Close the ${plane} plane for ${partner.serverName}`,
        "",
        `Plane ${PLANE_NUMBERS[plane]}, stage ${stage} of a removal (${run.kind}, ${run.trigger}).`,
        ...setAsideLines(base),
        "",
        ...trailers(run, stage),
        "",
      ].join("\n");
      const closed = setPlane(await base.textOf(file), plane, "closed");
      const retires = removal(run.kind).steps.some((step) => step.name === stage && step.retires);
      const text = retires
        ? setRetired(
            ...([closed, partner, thumbprintsElsewhere(base.registry, file)] as const),
            applicantsOf(base.registry, partner),
          )
        : closed;
      return { edits: new Map([[file, text]]), message };
    },
  });
  return found ?? revision;
}

function trailers(run: Run, stage: StageName): readonly string[] {
  return [`Offboarding-Run: ${run.run}`, `Offboarding-Stage: ${stage}`];
}

/** The first commit of the branch that says that it is this stage of this run. */
async function stageCommit(
  repository: Repository,
  run: Run,
  stage: StageName,
): Promise<Revision | undefined> {
  const patterns = trailers(run, stage).map((trailer) => `--grep=${trailer}`);
  const args = ["log", "--format=%H", "--fixed-strings", "--all-match", ...patterns, repository.ref, "--"];
  const listed = await gitLine(args, repository.call());
  if (listed === "") return undefined;
  const revision = parseRevision(listed.split("\n").at(-1));
  if (revision === undefined) throw new DrawbridgeError("internal", "git log printed no commit");
  return revision;
}
