// fed:down: ends the lab's own programs, and keeps its data unless --purge is given.
import { rmSync } from "node:fs";
import { type Lab, readLab } from "../lab.ts";
import { labDirectory, labPaths } from "../layout.ts";
import { removePrivateRecords } from "../offboard/open.ts";
import { signedRecords } from "../offboard/record.ts";
import { removeEmbeddedPostgres } from "../postgres/embedded-postgres.ts";
import { endLab } from "./lifecycle.ts";
import { FLAG, labName, parseOptions, withLockedLab } from "./options.ts";

const USAGE = `
Usage: ./task fed:down [--name LAB] [--purge]

Ends the programs of the lab, and none besides. Databases, rooms, keys and configuration stay for the next
fed:up.

  --name LAB  the lab; "default" when absent
  --purge     remove all of its data too. Each signed removal record that goes with them is named; without
              --purge it stays, and a copy of it can be kept anywhere
`;

export async function down(args: readonly string[]): Promise<number> {
  const options = parseOptions(args, USAGE, { purge: FLAG });
  if (options === undefined) return 0;
  const name = labName(options);
  const paths = labPaths(labDirectory(name));
  if (readLab(paths) === undefined) {
    process.stderr.write(`There is no lab ${name}: nothing to do.\n`);
    return 0;
  }
  return withLockedLab({ paths }, async (progress) => {
    const lab = readLab(paths);
    if (lab === undefined) return 0;
    if (await endLab(lab, progress)) progress.done(`ended the programs of the lab ${name}`);
    else progress.note(`The lab ${name} was not running.`);
    if (options.flag("purge")) {
      const records = signedRecords(paths);
      await purgeLab(lab);
      for (const file of records) progress.note(`removed a signed removal record: ${file}`);
      progress.done(`removed ${paths.directory}`);
    } else {
      progress.note(`Its data are kept in ${paths.directory}; --purge removes them.`);
    }
    return 0;
  });
}

/** Removes all of a lab's data, what PostgreSQL keeps elsewhere included. Its programs must have ended. */
async function purgeLab(lab: Lab): Promise<void> {
  await removeEmbeddedPostgres(lab.paths.postgres);
  removePrivateRecords(lab.id);
  rmSync(lab.paths.directory, { recursive: true, force: true });
}
