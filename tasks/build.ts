// Compiles the sources for the npm package (run by npm before it packs).
// Invariant: dist is made anew each time, so a file that was removed from src is never shipped.
import { cpSync, rmSync } from "node:fs";
import { extname, join } from "node:path";
import { npmProgram, ROOT, runProgram } from "./run-program.ts";

export async function build(): Promise<number> {
  const dist = join(ROOT, "dist");
  rmSync(dist, { recursive: true, force: true });
  const compiled = await runProgram(npmProgram("tsc"), ["-p", "tsconfig.build.json"]);
  if (compiled.code !== 0) return compiled.code;
  // What is read at run time beside the code: SQL migrations, templates.
  cpSync(join(ROOT, "src"), dist, { recursive: true, filter: (source) => extname(source) !== ".ts" });
  return 0;
}
