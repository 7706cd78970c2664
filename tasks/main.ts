// Runs one task: `node tasks/main.ts NAME args`. `./task` installs what it needs and then comes here.
import { existsSync } from "node:fs";
import { exitCodeOf, renderError } from "../src/cli/lib/command.ts";
import { outputWritten, tolerateClosedOutput } from "../src/cli/lib/output.ts";
import { DrawbridgeError } from "../src/domain/errors.ts";
import type { Task } from "./task.ts";

async function loadTask(name: string): Promise<Task> {
  const file = new URL(`${name.replaceAll(":", "-")}.ts`, import.meta.url);
  const isName = /^[a-z]+(?:[:-][a-z]+)*$/.test(name);
  const loaded = isName && existsSync(file) ? ((await import(file.href)) as { task?: Task }) : {};
  if (loaded.task?.name === name) return loaded.task;
  throw new DrawbridgeError("usage", `there is no task ${name}`, { hint: "Run ./task to see the list." });
}

/** Instead of running it: somebody who asks what a task does may not want its minutes of work. */
function explain({ name, summary }: Task): number {
  process.stdout.write(`Usage: ./task ${name} [arguments]\n\n${summary}\n`);
  return 0;
}

tolerateClosedOutput();
try {
  const [name = "", ...args] = process.argv.slice(2);
  const task = await loadTask(name);
  const isHelp = args.includes("--help") || args.includes("-h");
  const code = isHelp && task.explainsItself === undefined ? explain(task) : await task.run(args);
  await outputWritten();
  process.exit(code);
} catch (error) {
  process.stderr.write(renderError(error));
  process.exit(exitCodeOf(error));
}
