// Entry point of the CLI: runs one command and turns its end into an exit code.
import process from "node:process";
import { CommanderError } from "commander";
import { ExitCode, exitCodeOf, renderError } from "./lib/exit-codes.ts";
import { outputWritten, tolerateClosedOutput } from "./lib/output.ts";
import { buildProgram } from "./lib/program.ts";

tolerateClosedOutput();
try {
  const words = process.argv.slice(2);
  const program = await buildProgram(words);
  await program.parseAsync(words, { from: "user" });
} catch (error) {
  // Commander has printed its own message already; asked-for help is no error.
  if (error instanceof CommanderError) {
    process.exit(error.exitCode === 0 ? ExitCode.ok : ExitCode.usage);
  }
  process.stderr.write(renderError(error));
  await outputWritten();
  process.exit(exitCodeOf(error));
}
