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
  try {
    const words = process.argv.slice(2);
    const program = await build(words);
    await program.parseAsync(words, { from: "user" });
  } catch (error) {
    // Commander has printed its own message already; requested help is no error.
    if (error instanceof CommanderError) {
      process.exit(error.exitCode === 0 ? ExitCode.ok : ExitCode.usage);
    }
    printError(renderError(error));
    await outputWritten();
    process.exit(exitCodeOf(error));
  }
}
