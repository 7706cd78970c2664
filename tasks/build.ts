// Compiles the sources for the npm package (run by npm before it packs).
// Invariant: dist is made anew each time, so a file that was removed from src is never shipped.
import { spawnSync } from "node:child_process";
import { cpSync, rmSync } from "node:fs";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Task } from "./task.ts";

export const task: Task = {
  name: "build",
  summary: "Compile src into dist, as npm does before it packs.",
  needs: {},
  async run() {
    const root = fileURLToPath(new URL("..", import.meta.url));
    const dist = join(root, "dist");
    rmSync(dist, { recursive: true, force: true });
    const tsc = join(root, "node_modules", ".bin", "tsc");
    const compiled = spawnSync(tsc, ["-p", "tsconfig.build.json"], { cwd: root, stdio: "inherit" });
    if (compiled.status !== 0) return compiled.status ?? 1;
    // What is read at run time beside the code: SQL migrations, templates.
    cpSync(join(root, "src"), dist, { recursive: true, filter: (source) => extname(source) !== ".ts" });
    return 0;
  },
};
