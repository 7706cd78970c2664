// A repository on which passes of the reconciler are made, over planes of files.
import { join } from "node:path";
import type { TestContext } from "node:test";
import type { PlaneName } from "../../../../src/federation/plane-order.ts";
import { type PassOptions, runPass } from "../../../../src/federation/reconcile/pass.ts";
import {
  AT,
  commitRegistry,
  controlRepository,
  LIGHTHOUSE,
  openControl,
  partnerFile,
} from "../../../support/control-repository.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

export async function control(t: TestContext, settings: Readonly<Record<string, unknown>> = {}) {
  const directory = temporaryFolder(t);
  const repository = await controlRepository(join(directory, "control.git"));
  const clock = new ManualClock(AT);
  const opened = await openControl(directory, repository, clock, settings);
  const pass = async (options: PassOptions = {}) => {
    opened.parts.applied.length = 0;
    opened.events.length = 0;
    return runPass(opened.federation, options);
  };
  const close = (plane: PlaneName) =>
    commitRegistry(
      repository,
      new Map([
        [
          LIGHTHOUSE,
          partnerFile(
            LIGHTHOUSE,
            "classification: confidential\n",
            `classification: confidential\nplanes:\n  ${plane}: closed\n`,
          ),
        ],
      ]),
    );
  const target = (path: string) => join(opened.folder, path);
  return { ...opened, directory, repository, clock, pass, close, target };
}

export function lighthouseWith(line: string): string {
  const anchor = "classification: confidential\n";
  return partnerFile(LIGHTHOUSE, anchor, `${anchor}${line}\n`);
}
