// Another command of this program, as a process of its own, its output among ours.
// Invariant: a command that could not be started, or was killed, is reported and is an exit code like any other; it
// never keeps the caller from its next step.
import { spawn } from "node:child_process";
import process from "node:process";
import { shellWord } from "../../domain/printable.ts";
import { ExitCode } from "./exit-codes.ts";
import { say } from "./output.ts";

/**
 * @param words the command line after the program's name
 * @param program what runs it, and with which script
 * @returns its exit code; `failed` when it did not come to one
 */
export function runCommand(
  words: readonly string[],
  program: readonly [string, string] = [process.execPath, process.argv[1] ?? ""],
): Promise<number> {
  const [executable, script] = program;
  const shown = `drawbridge ${words.map(shellWord).join(" ")}`;
  const fail = (what: string) => {
    say(`error: ${shown} ${what}\nhint: Give that command yourself; nothing of it is known to be done.`);
    return ExitCode.failed;
  };
  return new Promise((done) => {
    const child = spawn(executable, [script, ...words], { stdio: ["ignore", "inherit", "inherit"] });
    child.once("error", (error: NodeJS.ErrnoException) =>
      done(fail(`could not be started: ${error.code ?? error.message}`)),
    );
    child.once("close", (code, signal) => done(code ?? fail(`was ended by ${signal}`)));
  });
}
