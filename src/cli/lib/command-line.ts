// Runs a command line to its end and turns that into an exit code.
import process from "node:process";
import { type Command, CommanderError } from "commander";
import { ExitCode, exitCodeOf, renderError } from "./exit-codes.ts";
import { outputWritten, printError, tolerateClosedOutput } from "./output.ts";

/** @param build makes the program for the words after the program's name. */
export async function runCommandLine(
  build: (words: readonly string[]) => Command | Promise<Command>,
): Promise<void> {
  tolerateClosedOutput();
  const code = await runWords(build, process.argv.slice(2));
  if (code === undefined) return;
  await outputWritten();
  process.exit(code);
}

/** @returns the exit code to end with at once; undefined when the command has set `process.exitCode` by itself */
export async function runWords(
  build: (words: readonly string[]) => Command | Promise<Command>,
  words: readonly string[],
): Promise<ExitCode | undefined> {
  try {
    await (await build(words)).parseAsync(words, { from: "user" });
    return undefined;
  } catch (error) {
    // Commander has printed its own message already; requested help is no error.
    if (error instanceof CommanderError) return error.exitCode === 0 ? ExitCode.ok : ExitCode.usage;
    printError(renderError(error));
    return exitCodeOf(error);
  }
}
