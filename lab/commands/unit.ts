// fed:unit: stops, starts, restarts or kills one program of the lab.
import { supervisorClient, UNIT_ACTIONS } from "../supervisor/client.ts";
import { namedLab, parseOptions, usageError } from "./options.ts";

const USAGE = `
Usage: ./task fed:unit start|stop|restart|kill UNIT [--name LAB]

UNIT is postgres, or organisation and program such as org-a/bridge; ./task fed:status lists them. A program
that is killed is started again by the supervisor, as after a crash; one that is stopped stays so until it
is started, or until the next fed:up.
`;

export async function unit(args: readonly string[]): Promise<number> {
  const options = parseOptions(args, USAGE, {}, 2);
  if (options === undefined) return 0;
  const [word, name] = options.positionals;
  const action = UNIT_ACTIONS.find((known) => known === word);
  if (action === undefined || name === undefined) {
    throw usageError("say what to do with which unit", USAGE);
  }
  await supervisorClient(namedLab(options)).execute({ action, unit: name });
  process.stdout.write(`${name}: ${action} done\n`);
  return 0;
}
