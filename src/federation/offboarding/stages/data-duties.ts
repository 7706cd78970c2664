// Stage 6 closes no plane: what was deleted is recorded, or waived by name; retention and the backups' end are
// written down; the declared state passes every test that needs no server.
import { DELETION_RECORDED, showsPurge } from "../../../records/format/duties.ts";
import type { Observation, Rule } from "./observation.ts";
import { DUTIES, PURGE_WAIVED, STATIC_TESTS } from "./stated-probes.ts";

const HOW_TO_PURGE =
  "Run drawbridge offboarding purge PARTNER; or, where nothing is to go, drawbridge offboarding set duties.purge.waiver WORD --record FILE.";

const OWN: ReadonlySet<string> = new Set([PURGE_WAIVED, DUTIES, STATIC_TESTS]);

export function dutiesRules({ items, duties, staticProblems = [] }: Observation): readonly Rule[] {
  const waived = duties?.known === true && duties.purgeWaived;
  const purges = [...new Set(items.map(({ probe }) => probe).filter((probe) => !OWN.has(probe)))];
  const isShown = items.some(showsPurge);
  const [firstProblem] = staticProblems;
  return [
    {
      condition: DELETION_RECORDED,
      probes: purges,
      needs: [],
      hint: HOW_TO_PURGE,
      // Also behind a purge that was run and has deleted nothing, because the record keeps everything.
      ...(waived && !isShown && { shownAbsentBy: PURGE_WAIVED }),
      ...(!waived &&
        !isShown && {
          objection: {
            verdict: "not_met" as const,
            found: "no purge is recorded, and none is waived",
            hint: HOW_TO_PURGE,
          },
        }),
    },
    {
      condition: "duties_recorded",
      probes: [DUTIES],
      needs: duties?.known === true ? [DUTIES] : [],
      hint: "Complete the private record: drawbridge offboarding set FIELD VALUE --record FILE.",
      ...(duties?.known === false && {
        objection: { verdict: "not_met" as const, found: duties.found, hint: duties.hint },
      }),
    },
    {
      condition: "static_tests_pass",
      probes: [STATIC_TESTS],
      needs: firstProblem === undefined ? [STATIC_TESTS] : [],
      hint: "Run drawbridge federation check in a work tree.",
      ...(firstProblem !== undefined && {
        objection: {
          verdict: "not_met" as const,
          found: firstProblem,
          hint: "Run drawbridge federation check in a work tree, correct what it names, and commit.",
        },
      }),
    },
  ];
}
