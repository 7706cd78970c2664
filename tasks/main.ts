// Runs one task: `node tasks/main.ts NAME args`. `./task` installs what it needs and then comes here.

import { outputWritten, renderError, tolerateClosedOutput } from "../src/cli/lib/command.ts";
import { ExitCode, endingOf } from "../src/cli/lib/exit-codes.ts";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { TASKS } from "./table.ts";

async function runTask(name: string, args: readonly string[]): Promise<number> {
  const task = TASKS.find((candidate) => candidate.name === name);
  if (task === undefined) {
    throw new DrawbridgeError("usage", `there is no task ${name}`, { hint: "Run ./task to see the list." });
  }
  const isHelp = args.includes("--help") || args.includes("-h");
  if (isHelp && task.hasHelp === undefined) {
    // Instead of running it: somebody who asks what a task does may not want its minutes of work.
    process.stdout.write(`Usage: ./task ${task.name} [arguments]\n\n${task.summary}\n`);
    return 0;
  }
  const run = await task.load();
  return await run(args);
}

tolerateClosedOutput();
try {
  const [name = "", ...args] = process.argv.slice(2);
  const code = await runTask(name, args);
  await outputWritten();
  process.exit(code);
} catch (error) {
  process.stderr.write(renderError(error));
  process.exit(ExitCode[endingOf(error)]);
}
